"""XXL-Job's wire protocol between a centre and its executors: JSON over HTTP POST.

Centre to executor: beat, idleBeat, run, kill, log. Executor to centre: registry, registryRemove,
callback. `messages` has what is said, `fields` how JSON is read, `tokens` and `addresses` who may
say it and where; `server` and `client` are the skins that have sockets.
"""
