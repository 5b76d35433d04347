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

// Share returns claims that refer to the lists of others that are equal, and leaves its own as they
// are: others may have them. From then on nobody may change the lists.
func (l *HostLists) Share(claims []Claim) []Claim {
	claims = slices.Clone(claims)
	for i := range claims {
		want := &claims[i].Want
		if want.Config != nil {
			shared := *want.Config
			shared.Scope.Hosts = l.one(shared.Scope.Hosts)
			want.Config = &shared
		}
		if want.Pool != nil {
			shared := *want.Pool
			shared.Scope.Hosts = l.one(shared.Scope.Hosts)
			want.Pool = &shared
		}
	}
	return claims
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
