"""A handler that runs the code of its jobs: workers fail in every way a build or a run can fail."""

import resource

from autosplit import phases


def open_faulty(setting):
    if "memory" in setting:
        resource.setrlimit(resource.RLIMIT_AS, (setting["memory"], setting["memory"]))

    def answer(job):
        phases.report(job["phase"])
        scope = {"phases": phases}
        exec(job["code"], scope)
        return scope.get("result")

    return answer
