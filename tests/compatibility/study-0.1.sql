BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'old');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MINIMIZE',1,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["period in ms"]');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'autosplit','{"format": 1, "version": "0.1.0"}');
INSERT INTO "study_user_attributes" VALUES(2,1,'identity','{"model": "1fb0216440156808da4172450b7595e0a4c2e16f6a289ef38a721a0fe5739c2e", "devices": "cores:0 cores:1 cores:2", "simulation": "Simulation(error=0.35, noise=0.02, contention=0.0, overhead=0.0, delay=0.0, seed=0)", "backend": "simulated", "objective": "throughput", "stages": "3"}');
INSERT INTO "study_user_attributes" VALUES(3,1,'profile','[{"device": "cores:0", "op_ms": [1.0747384998236083, 0.5034005922805208, 0.564262998121793, 0.4869872631637996, 0.6688996473812739, 3.9740704669356286, 1.3169911644823726, 0.9983848919330498, 0.1536955745147292, 3.8954731937085794, 1.0137317766042107, 0.20524644536202719], "spread_ms": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]}, {"device": "cores:1", "op_ms": [1.0747384998236083, 0.5034005922805208, 0.564262998121793, 0.4869872631637996, 0.6688996473812739, 3.9740704669356286, 1.3169911644823726, 0.9983848919330498, 0.1536955745147292, 3.8954731937085794, 1.0137317766042107, 0.20524644536202719], "spread_ms": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]}, {"device": "cores:2", "op_ms": [1.0747384998236083, 0.5034005922805208, 0.564262998121793, 0.4869872631637996, 0.6688996473812739, 3.9740704669356286, 1.3169911644823726, 0.9983848919330498, 0.1536955745147292, 3.8954731937085794, 1.0137317766042107, 0.20524644536202719], "spread_ms": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]}]');
INSERT INTO "study_user_attributes" VALUES(4,1,'links','[]');
INSERT INTO "study_user_attributes" VALUES(5,1,'graph','{"name": "chain", "ops": [{"name": "op0", "kernel": "op0", "sources": ["op0"], "inputs": ["t0"], "outputs": ["t1"], "weight_bytes": 0}, {"name": "op1", "kernel": "op1", "sources": ["op1"], "inputs": ["t1"], "outputs": ["t2"], "weight_bytes": 0}, {"name": "op2", "kernel": "op2", "sources": ["op2"], "inputs": ["t2"], "outputs": ["t3"], "weight_bytes": 0}, {"name": "op3", "kernel": "op3", "sources": ["op3"], "inputs": ["t3"], "outputs": ["t4"], "weight_bytes": 0}, {"name": "op4", "kernel": "op4", "sources": ["op4"], "inputs": ["t4"], "outputs": ["t5"], "weight_bytes": 0}, {"name": "op5", "kernel": "op5", "sources": ["op5"], "inputs": ["t5"], "outputs": ["t6"], "weight_bytes": 0}, {"name": "op6", "kernel": "op6", "sources": ["op6"], "inputs": ["t6"], "outputs": ["t7"], "weight_bytes": 0}, {"name": "op7", "kernel": "op7", "sources": ["op7"], "inputs": ["t7"], "outputs": ["t8"], "weight_bytes": 0}, {"name": "op8", "kernel": "op8", "sources": ["op8"], "inputs": ["t8"], "outputs": ["t9"], "weight_bytes": 0}, {"name": "op9", "kernel": "op9", "sources": ["op9"], "inputs": ["t9"], "outputs": ["t10"], "weight_bytes": 0}, {"name": "op10", "kernel": "op10", "sources": ["op10"], "inputs": ["t10"], "outputs": ["t11"], "weight_bytes": 0}, {"name": "op11", "kernel": "op11", "sources": ["op11"], "inputs": ["t11"], "outputs": ["t12"], "weight_bytes": 0}], "tensors": {"t0": {"shape": [1], "dtype": "float32", "bytes": 4}, "t1": {"shape": [1], "dtype": "float32", "bytes": 4}, "t2": {"shape": [1], "dtype": "float32", "bytes": 4}, "t3": {"shape": [1], "dtype": "float32", "bytes": 4}, "t4": {"shape": [1], "dtype": "float32", "bytes": 4}, "t5": {"shape": [1], "dtype": "float32", "bytes": 4}, "t6": {"shape": [1], "dtype": "float32", "bytes": 4}, "t7": {"shape": [1], "dtype": "float32", "bytes": 4}, "t8": {"shape": [1], "dtype": "float32", "bytes": 4}, "t9": {"shape": [1], "dtype": "float32", "bytes": 4}, "t10": {"shape": [1], "dtype": "float32", "bytes": 4}, "t11": {"shape": [1], "dtype": "float32", "bytes": 4}, "t12": {"shape": [1], "dtype": "float32", "bytes": 4}}, "inputs": ["t0"], "outputs": ["t12"]}');
INSERT INTO "study_user_attributes" VALUES(6,1,'bound_ms','6.266531882122596');
INSERT INTO "study_user_attributes" VALUES(7,1,'baselines','[{"name": "one core", "period_ms": {"median": 14.994245954752454, "low": 14.994245954752454, "high": 14.994245954752454}, "latency_ms": {"median": 14.994245954752454, "low": 14.994245954752454, "high": 14.994245954752454}, "copies": 1}, {"name": "all cores", "period_ms": {"median": 6.247602481146856, "low": 6.247602481146856, "high": 6.247602481146856}, "latency_ms": {"median": 6.247602481146856, "low": 6.247602481146856, "high": 6.247602481146856}, "copies": 1}, {"name": "replicas", "period_ms": {"median": 4.9980819849174845, "low": 4.9980819849174845, "high": 4.9980819849174845}, "latency_ms": {"median": 14.994245954752454, "low": 14.994245954752454, "high": 14.994245954752454}, "copies": 3}]');
INSERT INTO "study_user_attributes" VALUES(8,1,'config','{"name": "old", "model": null, "zoo": null, "stages": 3, "devices": null, "backend": "simulated", "objective": "throughput", "shapes": {}, "target": null, "targets": {}, "tuning": null, "storage": null, "export": null, "search": {"sampler": "planner", "trials": 4, "timeout": null, "seed": 0, "stagnation": null, "converge": true, "lease": 120}, "measure": {"seconds": 5.0, "share": 0.01, "items": 16, "latency_items": 3}, "simulated": {"graph": null, "ops": 12, "error": 0.35, "noise": 0.02, "contention": 0.0, "overhead": 0.0, "delay": 0.0, "seed": 0}, "regions": []}');
INSERT INTO "study_user_attributes" VALUES(9,1,'devices','["cores:0", "cores:1", "cores:2"]');
INSERT INTO "study_user_attributes" VALUES(10,1,'machine','"Intel(R) Xeon(R) Processor x2 vm"');
INSERT INTO "study_user_attributes" VALUES(11,1,'sampler','{"name": "planner", "seed": 0}');
INSERT INTO "study_user_attributes" VALUES(12,1,'stopped','"trial limit: 4 trials are finished"');
INSERT INTO "study_user_attributes" VALUES(13,1,'corrected','{"error": 0.34586540606730354, "noise": 0.011242415389039568, "period_over_slowest_stage": 1.0, "op_ms": [[1.13624708270745, 0.5562392360591586, 0.6269388576752514, 0.5373003900385367, 0.5994465885058301, 4.5701112181102514, 2.1215359246958183, 0.9618629047145663, 0.15990507233670467, 2.7244446425725353, 0.9752305105598804, 0.2125743784334287]], "overhead_ms": [0.0]}');
INSERT INTO "study_user_attributes" VALUES(14,1,'duel','{"measured": 4, "entries": [{"number": 2, "period_ms": {"median": 6.544567220460806, "low": 6.479121548256198, "high": 6.610012892665414}}], "baselines": [{"median": 14.994245954752454, "low": 14.994245954752454, "high": 14.994245954752454}, {"median": 6.247602481146856, "low": 6.247602481146856, "high": 6.247602481146856}, {"median": 4.9980819849174845, "low": 4.9980819849174845, "high": 4.9980819849174845}]}');
INSERT INTO "study_user_attributes" VALUES(15,1,'verdict','{"choice": "replicate", "text": "Do not split, replicate: the best split into 3 stages takes 6.54 ms (6.48 to 6.61) an item, 0.76 times the throughput of 3 replicas at 5 ms, so splitting loses."}');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_heartbeats" VALUES(1,1,'2026-11-21 23:36:57');
INSERT INTO "trial_heartbeats" VALUES(2,2,'2026-11-21 23:36:57');
INSERT INTO "trial_heartbeats" VALUES(3,3,'2026-11-21 23:36:57');
INSERT INTO "trial_heartbeats" VALUES(4,4,'2026-11-21 23:36:57');
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'cut_1',1.76993144019324866178e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(2,1,'cut_2',5.78178416793101557225e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(3,1,'branch',0.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(4,2,'cut_1',2.22019055252594327276e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(5,2,'cut_2',4.89527260376534933961e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(6,2,'branch',0.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(7,3,'cut_1',2.22019055252594327276e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(8,3,'cut_2',5.78178416793101557225e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(9,3,'branch',0.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(10,4,'cut_1',7.23443052802986291682e-02,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(11,4,'cut_2',4.89527260376534933961e-01,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
INSERT INTO "trial_params" VALUES(12,4,'branch',0.0,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'worker','{"host": "vm", "pid": 420, "start": "2eb03385-177410"}');
INSERT INTO "trial_user_attributes" VALUES(2,1,'key','"3:f.7f"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'stages','[[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10, 11]]');
INSERT INTO "trial_user_attributes" VALUES(4,1,'cuts','[["op3"], ["op6"]]');
INSERT INTO "trial_user_attributes" VALUES(5,1,'live','[[["t4", 4]], [["t7", 4]]]');
INSERT INTO "trial_user_attributes" VALUES(6,1,'predicted_ms','6.266531882122596');
INSERT INTO "trial_user_attributes" VALUES(7,1,'memory_bytes','8');
INSERT INTO "trial_user_attributes" VALUES(8,1,'period_ms','{"median": 7.2491256560065445, "low": 6.9591606297662825, "high": 7.5390906822468065}');
INSERT INTO "trial_user_attributes" VALUES(9,1,'latency_ms','{"median": 14.99766049859571, "low": 14.707695472355448, "high": 15.287625524835972}');
INSERT INTO "trial_user_attributes" VALUES(10,1,'stage_ms','[2.823027036659691, 7.2491256560065445, 4.925507805929473]');
INSERT INTO "trial_user_attributes" VALUES(11,1,'max_rel_error','0.0');
INSERT INTO "trial_user_attributes" VALUES(12,1,'period','7.2491256560065445');
INSERT INTO "trial_user_attributes" VALUES(13,1,'latency','14.99766049859571');
INSERT INTO "trial_user_attributes" VALUES(14,1,'imbalance','1.4500512910034153');
INSERT INTO "trial_user_attributes" VALUES(15,1,'bottleneck_stage','1');
INSERT INTO "trial_user_attributes" VALUES(16,1,'stage0_ms','2.823027036659691');
INSERT INTO "trial_user_attributes" VALUES(17,1,'stage1_ms','7.2491256560065445');
INSERT INTO "trial_user_attributes" VALUES(18,1,'stage2_ms','4.925507805929473');
INSERT INTO "trial_user_attributes" VALUES(19,2,'worker','{"host": "vm", "pid": 420, "start": "2eb03385-177410"}');
INSERT INTO "trial_user_attributes" VALUES(20,2,'key','"3:1f.3f"');
INSERT INTO "trial_user_attributes" VALUES(21,2,'stages','[[0, 1, 2, 3, 4], [5], [6, 7, 8, 9, 10, 11]]');
INSERT INTO "trial_user_attributes" VALUES(22,2,'cuts','[["op4"], ["op5"]]');
INSERT INTO "trial_user_attributes" VALUES(23,2,'live','[[["t5", 4]], [["t6", 4]]]');
INSERT INTO "trial_user_attributes" VALUES(24,2,'predicted_ms','6.4147126894462785');
INSERT INTO "trial_user_attributes" VALUES(25,2,'memory_bytes','8');
INSERT INTO "trial_user_attributes" VALUES(26,2,'period_ms','{"median": 7.1862903585994635, "low": 6.898838744255485, "high": 7.473741972943442}');
INSERT INTO "trial_user_attributes" VALUES(27,2,'latency_ms','{"median": 15.09355457804445, "low": 14.806102963700472, "high": 15.38100619238843}');
INSERT INTO "trial_user_attributes" VALUES(28,2,'stage_ms','[3.3936212236476795, 4.513642995797307, 7.1862903585994635]');
INSERT INTO "trial_user_attributes" VALUES(29,2,'max_rel_error','0.0');
INSERT INTO "trial_user_attributes" VALUES(30,2,'period','7.1862903585994635');
INSERT INTO "trial_user_attributes" VALUES(31,2,'latency','15.09355457804445');
INSERT INTO "trial_user_attributes" VALUES(32,2,'imbalance','1.4283494960927619');
INSERT INTO "trial_user_attributes" VALUES(33,2,'bottleneck_stage','2');
INSERT INTO "trial_user_attributes" VALUES(34,2,'stage0_ms','3.3936212236476795');
INSERT INTO "trial_user_attributes" VALUES(35,2,'stage1_ms','4.513642995797307');
INSERT INTO "trial_user_attributes" VALUES(36,2,'stage2_ms','7.1862903585994635');
INSERT INTO "trial_user_attributes" VALUES(37,3,'worker','{"host": "vm", "pid": 420, "start": "2eb03385-177410"}');
INSERT INTO "trial_user_attributes" VALUES(38,3,'key','"3:1f.7f"');
INSERT INTO "trial_user_attributes" VALUES(39,3,'stages','[[0, 1, 2, 3, 4], [5, 6], [7, 8, 9, 10, 11]]');
INSERT INTO "trial_user_attributes" VALUES(40,3,'cuts','[["op4"], ["op6"]]');
INSERT INTO "trial_user_attributes" VALUES(41,3,'live','[[["t5", 4]], [["t7", 4]]]');
INSERT INTO "trial_user_attributes" VALUES(42,3,'predicted_ms','6.60625169971557');
INSERT INTO "trial_user_attributes" VALUES(43,3,'memory_bytes','8');
INSERT INTO "trial_user_attributes" VALUES(44,3,'period_ms','{"median": 6.6712602576929765, "low": 6.404409847385257, "high": 6.938110668000696}');
INSERT INTO "trial_user_attributes" VALUES(45,3,'latency_ms','{"median": 15.163505935158328, "low": 14.89665552485061, "high": 15.430356345466047}');
INSERT INTO "trial_user_attributes" VALUES(46,3,'stage_ms','[3.4336877357704236, 6.6712602576929765, 5.058557941694929]');
INSERT INTO "trial_user_attributes" VALUES(47,3,'max_rel_error','0.0');
INSERT INTO "trial_user_attributes" VALUES(48,3,'period','6.6712602576929765');
INSERT INTO "trial_user_attributes" VALUES(49,3,'latency','15.163505935158328');
INSERT INTO "trial_user_attributes" VALUES(50,3,'imbalance','1.3198650007894734');
INSERT INTO "trial_user_attributes" VALUES(51,3,'bottleneck_stage','1');
INSERT INTO "trial_user_attributes" VALUES(52,3,'stage0_ms','3.4336877357704236');
INSERT INTO "trial_user_attributes" VALUES(53,3,'stage1_ms','6.6712602576929765');
INSERT INTO "trial_user_attributes" VALUES(54,3,'stage2_ms','5.058557941694929');
INSERT INTO "trial_user_attributes" VALUES(55,4,'worker','{"host": "vm", "pid": 420, "start": "2eb03385-177410"}');
INSERT INTO "trial_user_attributes" VALUES(56,4,'key','"3:1.3f"');
INSERT INTO "trial_user_attributes" VALUES(57,4,'stages','[[0], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]');
INSERT INTO "trial_user_attributes" VALUES(58,4,'cuts','[["op0"], ["op5"]]');
INSERT INTO "trial_user_attributes" VALUES(59,4,'live','[[["t1", 4]], [["t6", 4]]]');
INSERT INTO "trial_user_attributes" VALUES(60,4,'predicted_ms','7.161423477098065');
INSERT INTO "trial_user_attributes" VALUES(61,4,'memory_bytes','8');
INSERT INTO "trial_user_attributes" VALUES(62,4,'period_ms','{"median": 7.07268587243866, "low": 6.789778437541114, "high": 7.355593307336206}');
INSERT INTO "trial_user_attributes" VALUES(63,4,'latency_ms','{"median": 15.059846552236813, "low": 14.776939117339266, "high": 15.34275398713436}');
INSERT INTO "trial_user_attributes" VALUES(64,4,'stage_ms','[1.0999955936038397, 6.887165086194313, 7.07268587243866]');
INSERT INTO "trial_user_attributes" VALUES(65,4,'max_rel_error','0.0');
INSERT INTO "trial_user_attributes" VALUES(66,4,'period','7.07268587243866');
INSERT INTO "trial_user_attributes" VALUES(67,4,'latency','15.059846552236813');
INSERT INTO "trial_user_attributes" VALUES(68,4,'imbalance','1.4089159237923643');
INSERT INTO "trial_user_attributes" VALUES(69,4,'bottleneck_stage','2');
INSERT INTO "trial_user_attributes" VALUES(70,4,'stage0_ms','1.0999955936038397');
INSERT INTO "trial_user_attributes" VALUES(71,4,'stage1_ms','6.887165086194313');
INSERT INTO "trial_user_attributes" VALUES(72,4,'stage2_ms','7.07268587243866');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,7.24912565600654446029e+00,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,7.1862903585994635236e+00,'FINITE');
INSERT INTO "trial_values" VALUES(3,3,0,6.67126025769297648082e+00,'FINITE');
INSERT INTO "trial_values" VALUES(4,4,0,7.07268587243866,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-21 23:36:57.306642','2026-11-21 23:36:57.366988');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-21 23:36:57.392482','2026-11-21 23:36:57.433475');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-21 23:36:57.454066','2026-11-21 23:36:57.483803');
INSERT INTO "trials" VALUES(4,3,1,'COMPLETE','2026-11-21 23:36:57.502406','2026-11-21 23:36:57.539045');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;