package comserver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	fakewmi "github.com/gpufleet/terraform-provider-gpu/internal/fake/wmi"
)

var iidLocator = ole.NewGUID("{76A6415B-CB41-11D1-8B02-00600806D9B6}")

// Codes of WMI that only a connection answers with.
const localCredentials hyperv.Code = 0x80041064 // WBEM_E_LOCAL_CREDENTIALS

// privacy is the authentication level at which calls are encrypted.
const privacy = 6

// locator is SWbemLocator.
type locator struct{ machine *fakewmi.Machine }

func (l *locator) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "connectserver":
		return method(0, 8, l.connectServer)
	case "security_":
		return constantObject(func() *object { return dispatch(&security{level: new(atomic.Int32)}) })
	}
	return member{}, false
}

func (l *locator) connectServer(a args) (any, error) {
	var texts [6]string // server, namespace, user, password, locale, authority
	for i := range texts {
		var err error
		if texts[i], err = a.text(i); err != nil {
			return nil, err
		}
	}
	server, namespace, user, password := texts[0], texts[1], texts[2], texts[3]
	if user != "" || password != "" {
		return nil, &hyperv.Fault{Code: localCredentials, Text: "User credentials cannot be used for local connections"}
	}
	if server != "" && server != "." && !strings.EqualFold(server, "localhost") {
		return nil, &hyperv.Fault{Code: hyperv.ServerUnavail, Text: "The RPC server is unavailable."}
	}
	if namespace == "" {
		namespace = hyperv.CIMv2
	}
	n, err := apart(func() (*fakewmi.Namespace, error) { return l.machine.Open(namespace) })
	if err != nil {
		return nil, err
	}
	return dispatch(&services{
		namespace: n,
		encrypted: strings.EqualFold(strings.ReplaceAll(namespace, "/", `\`), hyperv.MSCluster),
		level:     new(atomic.Int32),
		opened:    restarts.Load(),
	}), nil
}

// services is SWbemServices, a session with a namespace.
type services struct {
	namespace *fakewmi.Namespace
	// encrypted is set for a namespace that refuses what is not.
	encrypted bool
	level     *atomic.Int32
	// opened is how often the service had been restarted by then.
	opened int64
	// lost is set once the service has gone: a session does not come back with it.
	lost atomic.Bool
}

func (s *services) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "execquery":
		return method(1, 4, s.execQuery)
	case "get":
		return method(0, 3, s.get)
	case "instancesof":
		return method(1, 3, s.instancesOf)
	case "execmethod":
		return method(2, 5, s.execMethod)
	case "security_":
		return constantObject(func() *object { return dispatch(&security{s.level}) })
	}
	return member{}, false
}

// ask asks the repository, unless the session is lost, or not encrypted where that
// is asked for.
func ask[T any](s *services, f func() (T, error)) (T, error) {
	var none T
	switch {
	case s.lost.Load() || s.opened != restarts.Load():
		return none, &hyperv.Fault{Code: hyperv.Disconnected, Text: "The object invoked has disconnected from its clients."}
	case s.encrypted && s.level.Load() < privacy:
		return none, &hyperv.Fault{Code: hyperv.AccessDenied, Text: "Access denied"}
	}
	out, err := apart(f)
	if errors.Is(err, hyperv.ServerUnavail) {
		s.lost.Store(true)
	}
	return out, err
}

func (s *services) execQuery(a args) (any, error) {
	wql, err := a.text(0)
	if err != nil {
		return nil, err
	}
	language, err := a.text(1)
	if err != nil {
		return nil, err
	}
	if language != "" && !strings.EqualFold(language, "WQL") {
		return nil, &hyperv.Fault{Code: 0x80041018, Text: "Invalid query type"} // WBEM_E_INVALID_QUERY_TYPE
	}
	return s.query(wql)
}

func (s *services) instancesOf(a args) (any, error) {
	class, err := a.text(0)
	if err != nil {
		return nil, err
	}
	return s.query("SELECT * FROM " + class)
}

// query answers with a set at once, as WMI does by default. Only what is no query at
// all is refused here; any other failure comes out when the set is looked at.
func (s *services) query(wql string) (any, error) {
	rows, err := ask(s, func() ([]*fakewmi.Object, error) { return s.namespace.Query(context.Background(), wql) })
	if errors.Is(err, hyperv.InvalidQuery) {
		return nil, err
	}
	return dispatch(&objectSet{s, rows, err}), nil
}

func (s *services) get(a args) (any, error) {
	path, err := a.text(0)
	if err != nil {
		return nil, err
	}
	o, err := s.object(path)
	if err != nil {
		return nil, err
	}
	return dispatch(s.wrap(o)), nil
}

func (s *services) object(path string) (*fakewmi.Object, error) {
	return ask(s, func() (*fakewmi.Object, error) { return s.namespace.Get(context.Background(), path) })
}

func (s *services) execMethod(a args) (any, error) {
	path, err := a.text(0)
	if err != nil {
		return nil, err
	}
	name, err := a.text(1)
	if err != nil {
		return nil, err
	}
	in, err := inParameters(a, 2)
	if err != nil {
		return nil, err
	}
	return s.call(path, name, in)
}

func (s *services) call(path, name string, in *fakewmi.Object) (any, error) {
	out, err := ask(s, func() (*fakewmi.Object, error) {
		return s.namespace.Call(context.Background(), path, name, in)
	})
	if err != nil {
		return nil, err
	}
	if out == nil {
		return noObject{}, nil
	}
	return dispatch(s.wrap(out)), nil
}

// inParameters is an argument that holds a method's in parameters.
func inParameters(a args, i int) (*fakewmi.Object, error) {
	face, err := a.object(i)
	if face == nil || err != nil {
		return nil, err
	}
	in, ok := face.(*wbemObject)
	if !ok {
		return nil, refusal(dispTypeMismatch)
	}
	return in.object, nil
}

// objectSet is SWbemObjectSet, what a query answers with.
type objectSet struct {
	services *services
	rows     []*fakewmi.Object
	err      error
}

func (s *objectSet) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "_newenum":
		return property(func() (any, error) {
			return enum(len(s.rows), func(i int) any { return dispatch(s.services.wrap(s.rows[i])) }, s.err), nil
		})
	case "count":
		return property(func() (any, error) { return int32(len(s.rows)), s.err })
	case "item":
		return method(1, 2, s.item)
	}
	return member{}, false
}

func (s *objectSet) item(a args) (any, error) {
	path, err := a.text(0)
	if err != nil {
		return nil, err
	}
	if s.err != nil {
		return nil, s.err
	}
	for _, o := range s.rows {
		if o.Path != "" && strings.EqualFold(o.Path, path) {
			return dispatch(s.services.wrap(o)), nil
		}
	}
	return nil, &hyperv.Fault{Code: hyperv.NotFound, Text: "Not found"}
}

// security is SWbemSecurity.
type security struct{ level *atomic.Int32 }

func (s *security) member(name string) (member, bool) {
	switch strings.ToLower(name) {
	case "authenticationlevel":
		m, ok := property(func() (any, error) { return s.level.Load(), nil })
		m.put = func(v *ole.VARIANT) error {
			level, err := args{list: []*ole.VARIANT{v}}.number(0)
			if err == nil && (level < 0 || level > privacy) {
				return &hyperv.Fault{Code: hyperv.InvalidParameter, Text: "Invalid parameter"}
			}
			s.level.Store(level)
			return err
		}
		return m, ok
	case "impersonationlevel":
		m, ok := constant(int32(3))
		m.put = func(v *ole.VARIANT) error {
			_, err := args{list: []*ole.VARIANT{v}}.number(0)
			return err
		}
		return m, ok
	}
	return member{}, false
}

// constantObject is a property that is an object, a new one each time.
func constantObject(f func() *object) (member, bool) {
	return property(func() (any, error) { return f(), nil })
}
