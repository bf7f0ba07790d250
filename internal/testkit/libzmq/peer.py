# One socket of libzmq. Each line of the input is a list in JSON: the name of a method
# below and its arguments. Each line of the output is its result. Frames are in hexadecimal.
import json
import sys
import zmq

socket = zmq.Context().socket(getattr(zmq, sys.argv[1]))


def set(name, value):
    socket.setsockopt(getattr(zmq, name), value.encode() if isinstance(value, str) else value)


def bind(endpoint):
    socket.bind(endpoint)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def send(frames):
    socket.send_multipart([bytes.fromhex(f) for f in frames])


def receive(milliseconds):
    """A message, or null if none comes in time."""
    return [f.hex() for f in socket.recv_multipart()] if socket.poll(milliseconds) else None


methods = {"set": set, "bind": bind, "connect": socket.connect, "send": send, "receive": receive}
for line in sys.stdin:
    name, *arguments = json.loads(line)
    result = methods[name](*arguments)
    print(json.dumps(result if isinstance(result, (str, list)) else None), flush=True)
