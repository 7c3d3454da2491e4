#!/usr/bin/env bash
# Runs the one broker and the one controller of a test as one process with both roles: a start command for the
# kafka-it suites, for as long as Weir serves no node with a single role. The process belongs to the broker's
# properties; the controller's start only waits to be stopped. What needs more than one broker or controller fails.
#
#   KAFKA_SERVER_START='onenode.sh WEIR' kafka-it-clients.sh
set -euo pipefail
weir=$1 file=$2
key() { sed -n "s/^$1=//p" "$file" | sed 's/\\\([:=]\)/\1/g'; }
refuse() { echo "onenode: $*" >&2 && exit 1; }

roles=$(key process.roles) voters=$(key controller.quorum.voters)
[[ $roles == broker,controller ]] && exec "$weir" server "$file"
[[ $voters == *@* && $voters != *,* ]] || refuse "not one controller at a fixed address: controller.quorum.voters=$voters"
[[ $(key listener.security.protocol.map) != *S[AS][SL]* ]] || refuse "a listener is not PLAINTEXT"
[[ $roles == controller ]] && exec tail -f /dev/null
exec "$weir" server "$file" --override process.roles=broker,controller \
  --override "controller.quorum.voters=$(key node.id)@${voters#*@}" \
  --override "listeners=$(key listeners),$(key controller.listener.names)://${voters#*@}"
