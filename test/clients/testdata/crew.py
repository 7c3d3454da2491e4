"""What the crews (crew_test.go) in Python share: orders on standard input, members in threads."""
import os
import sys
import threading
import traceback

_out = threading.Lock()


def say(line):
    with _out:
        sys.stdout.write(line + '\n')
        sys.stdout.flush()


def grumble(*what):
    print(*what, file=sys.stderr, flush=True)


def assigned(name, partitions):
    say('%s assigned %s' % (name, ','.join(str(p) for p in sorted(partitions)) or '-'))


def record(name, partition, offset, value):
    say('%s record %d %d %s' % (name, partition, offset, value.decode()))


class Member(threading.Thread):
    """One member of the group. work() runs in a thread of its own until self.leaving is set, and leaves in good order."""

    def __init__(self, name):
        super().__init__(daemon=True)
        self.name = name
        self.leaving = threading.Event()

    def run(self):
        try:
            self.work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def leave(self):
        self.leaving.set()
        self.join()


def main(send, member, extra=None):
    """Obeys until the end of input. send(FROM, TO) returns when all is acknowledged; member(NAME) makes a Member."""
    members = {}
    for line in sys.stdin:
        w = line.split()
        if w[0] == 'send':
            send(int(w[1]), int(w[2]))
            say('sent ' + w[2])
        elif w[0] == 'join':
            members[w[1]] = member(w[1])
            members[w[1]].start()
        elif w[0] == 'leave':
            members.pop(w[1]).leave()
            say(w[1] + ' left')
        elif w[0] == 'extra' and extra:
            extra()
            say('extra ok')
        else:
            sys.exit('what is ' + line)
    for m in members.values():
        m.leave()
