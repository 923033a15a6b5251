"""A server of an export: the Open Inference Protocol (v2) over HTTP.

Read ``protocol`` first (requests and responses as bytes; no network), then ``metrics`` (counters in
the text format of Prometheus) and ``app``, which answers requests with a running pipeline. ``app``
imports starlette and uvicorn, the extra ``serve``. ``completions`` makes the items of a decoder of
token ids. ``hints`` configures other servers.
"""
