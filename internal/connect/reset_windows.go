package connect

import "syscall"

// errReset is the other end's refusal to go on with a connection, by Winsock's number.
const errReset = syscall.WSAECONNRESET
