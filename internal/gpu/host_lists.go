package gpu

import (
	"slices"
	"strings"
	"sync"
)

// HostLists has one of each list of hosts that claims name. A config names all of its hosts in its
// claim on each of them: on a thousand hosts that is a thousand times the same thousand names.
// Its zero value is ready, for several goroutines at once.
type HostLists struct {
	mu    sync.Mutex
	lists map[string][]string
}

// Share has claims, which nobody else has yet, refer to the lists of others that are equal. From
// then on nobody may change these.
func (l *HostLists) Share(claims []Claim) {
	for i := range claims {
		if c := claims[i].Want.Config; c != nil {
			c.Scope.Hosts = l.one(c.Scope.Hosts)
		}
		if p := claims[i].Want.Pool; p != nil {
			p.Scope.Hosts = l.one(p.Scope.Hosts)
		}
	}
}

func (l *HostLists) one(hosts []string) []string {
	if len(hosts) == 0 {
		return hosts
	}
	key := strings.Join(hosts, "\x00")
	l.mu.Lock()
	defer l.mu.Unlock()
	if same, ok := l.lists[key]; ok && slices.Equal(same, hosts) {
		return same
	}
	if l.lists == nil {
		l.lists = map[string][]string{}
	}
	l.lists[key] = hosts
	return hosts
}
