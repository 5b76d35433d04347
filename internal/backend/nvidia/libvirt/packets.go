package libvirt

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// dialed is a connection that is there already, for go-libvirt.
type dialed struct{ net.Conn }

// Dial implements the library's dialer.
func (d dialed) Dial() (net.Conn, error) { return d.Conn, nil }

// A packet has its length before it, and at least a header. No daemon sends more than VIR_NET_MESSAGE_MAX.
const (
	lengthOfLength = 4
	leastOfPacket  = 28
	mostOfPacket   = 32<<20 + lengthOfLength
)

// packets refuses lengths that no daemon sends: go-libvirt takes memory for whatever length it is told, and
// ends the process for one that is too small.
type packets struct {
	net.Conn
	left int // of the packet that is being read
}

func (p *packets) Read(to []byte) (int, error) {
	if p.left == 0 {
		return p.begin(to)
	}
	n, err := p.Conn.Read(to[:min(len(to), p.left)])
	p.left -= n
	return n, err
}

// begin reads the length of the next packet, for which the library's buffer always has room.
func (p *packets) begin(to []byte) (int, error) {
	if len(to) < lengthOfLength {
		return 0, io.ErrShortBuffer
	}
	n, err := io.ReadFull(p.Conn, to[:lengthOfLength])
	if err != nil {
		return 0, err
	}
	length := binary.BigEndian.Uint32(to)
	if length < leastOfPacket || length > mostOfPacket {
		return 0, fmt.Errorf("the daemon sends a packet of %d bytes, which is none of libvirt's", length)
	}
	p.left = int(length) - lengthOfLength
	return n, nil
}
