package hyperv

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Namespaces of a host.
const (
	Virtualization = `root\virtualization\v2`
	CIMv2          = `root\cimv2`
	MSCluster      = `root\MSCluster`
	Registry       = `root\default`
)

// WMI is what the backend asks of the WMI service of one host. Every failure of the
// service is a *Fault; a call never answers with less than all rows.
type WMI interface {
	// Query runs a WQL query and reads the named properties of each instance. A
	// property that the class does not have on this build of Windows is left out of
	// the row; one without a value is nil.
	Query(ctx context.Context, namespace, wql string, properties ...string) ([]Row, error)
	// Get reads one instance again. *Fault NotFound when it is gone.
	Get(ctx context.Context, namespace, path string, properties ...string) (Row, error)
	// Text is an instance in the XML that methods take embedded instances in (CIM
	// DTD 2.0, GetText_ with wbemObjectTextFormatCIMDTD20).
	Text(ctx context.Context, namespace, path string) (string, error)
	// Put sets properties of an instance and writes it back. The value of an embedded
	// object is a map[string]any of those of its properties that change.
	Put(ctx context.Context, namespace, path string, set map[string]any) error
	// Invoke calls a method of an instance. In parameters are a string, a bool, an
	// int32, a []string or nil; references are paths and embedded instances are XML.
	Invoke(ctx context.Context, namespace, path, method string, in map[string]any) (Result, error)
	// Close ends the connection to the service.
	Close() error
}

// Row is one instance. Values are as automation delivers them: bool, string, int32
// (also of unsigned types up to 32 bits), a decimal string for 64 bits, []any for
// arrays, Row for an embedded object, nil for no value.
type Row struct {
	// Path is the instance's full path, \\HOST\namespace:Class.Key="...".
	Path   string
	Values map[string]any
}

// Result is a method's answer.
type Result struct {
	// ReturnValue is 0 for done, 4096 for a job that has begun; else what went wrong.
	ReturnValue uint32
	// Out holds the out parameters.
	Out map[string]any
}

// lookup finds a value by its name, which WMI compares without case: out parameters
// are spelled as a class declares them (rebootNeeded), and classes differ.
func (r Row) lookup(name string) (value any, ok bool) {
	if value, ok = r.Values[name]; ok {
		return value, true
	}
	for key, value := range r.Values {
		if strings.EqualFold(key, name) {
			return value, true
		}
	}
	return nil, false
}

func (r Row) value(name string) any {
	value, _ := r.lookup(name)
	return value
}

// Has tells whether the class has the property on this build of Windows.
func (r Row) Has(name string) bool {
	_, ok := r.lookup(name)
	return ok
}

// String is a string's value, "" for none.
func (r Row) String(name string) string {
	s, _ := r.value(name).(string)
	return s
}

// Strings are an array's values.
func (r Row) Strings(name string) []string {
	return listOf(r.value(name), func(v any) (string, bool) { s, ok := v.(string); return s, ok })
}

// Bool is a boolean's value, false for none.
func (r Row) Bool(name string) bool {
	b, _ := r.value(name).(bool)
	return b
}

// BoolPtr is a boolean's value, nil for none.
func (r Row) BoolPtr(name string) *bool {
	b, ok := r.value(name).(bool)
	if !ok {
		return nil
	}
	return &b
}

// Uint is a number's value, 0 for none.
func (r Row) Uint(name string) uint64 {
	n, _ := number(r.value(name))
	return n
}

// UintPtr is a number's value, nil for none.
func (r Row) UintPtr(name string) *uint64 {
	n, ok := number(r.value(name))
	if !ok {
		return nil
	}
	return &n
}

// Uints are an array's values.
func (r Row) Uints(name string) []uint64 {
	return listOf(r.value(name), number)
}

// Row is an embedded object.
func (r Row) Row(name string) Row {
	inner, _ := r.value(name).(Row)
	return inner
}

// Rows are embedded objects.
func (r Row) Rows(name string) []Row {
	return listOf(r.value(name), func(v any) (Row, bool) { inner, ok := v.(Row); return inner, ok })
}

// listOf are those of an array's values that are of a type.
func listOf[T any](array any, as func(any) (T, bool)) []T {
	list, _ := array.([]any)
	var out []T
	for _, v := range list {
		if t, ok := as(v); ok {
			out = append(out, t)
		}
	}
	return out
}

// number reads what automation makes of a number: a uint32 above 2^31 arrives as a
// negative int32, a uint64 as its decimal digits.
func number(v any) (uint64, bool) {
	switch n := v.(type) {
	case int32:
		return uint64(uint32(n)), true
	case int16:
		return uint64(uint16(n)), true
	case uint8:
		return uint64(n), true
	case string:
		u, err := strconv.ParseUint(n, 10, 64)
		return u, err == nil
	}
	return 0, false
}

// isNull is the error of a property that has to be told and is not.
func isNull(class, property string) error { return fmt.Errorf("%s of %s is NULL", property, class) }

// Fault is a failure of the WMI service or of the way to it.
type Fault struct {
	Code Code
	// Op is what was asked: "query SELECT ...", "call AddResourceSettings".
	Op string
	// Namespace and Class are where. The backend fills them in: an implementation of
	// the seam need not.
	Namespace, Class string
	// Text is the service's own description, in the host's language.
	Text string
}

// Code is an HRESULT.
type Code uint32

// Codes that the backend tells apart.
const (
	NotFound         Code = 0x80041002 // WBEM_E_NOT_FOUND
	AccessDenied     Code = 0x80041003 // WBEM_E_ACCESS_DENIED
	InvalidParameter Code = 0x80041008 // WBEM_E_INVALID_PARAMETER
	InvalidNamespace Code = 0x8004100E // WBEM_E_INVALID_NAMESPACE
	InvalidClass     Code = 0x80041010 // WBEM_E_INVALID_CLASS
	ProviderNotFound Code = 0x80041011 // WBEM_E_PROVIDER_NOT_FOUND
	ProviderNoLoad   Code = 0x80041013 // WBEM_E_PROVIDER_LOAD_FAILURE
	ProviderNoInit   Code = 0x80041014 // WBEM_E_INITIALIZATION_FAILURE
	InvalidQuery     Code = 0x80041017 // WBEM_E_INVALID_QUERY
	InvalidMethod    Code = 0x8004102E // WBEM_E_INVALID_METHOD
	ShuttingDown     Code = 0x80041033 // WBEM_E_SHUTTING_DOWN
	typeMismatch     Code = 0x80041005 // WBEM_E_TYPE_MISMATCH
	DCOMDenied       Code = 0x80070005 // E_ACCESSDENIED
	ServerUnavail    Code = 0x800706BA // RPC_S_SERVER_UNAVAILABLE
	CallFailed       Code = 0x800706BE // RPC_S_CALL_FAILED
	Disconnected     Code = 0x80010108 // RPC_E_DISCONNECTED
	UnknownName      Code = 0x80020006 // DISP_E_UNKNOWNNAME
	Unexpected       Code = 0x8000FFFF // E_UNEXPECTED
)

var codeNames = map[Code]string{
	NotFound: "not found", AccessDenied: "access denied", InvalidParameter: "invalid parameter",
	InvalidNamespace: "invalid namespace", InvalidClass: "invalid class", InvalidQuery: "invalid query",
	ProviderNotFound: "provider not found", ProviderNoLoad: "the provider does not load", ProviderNoInit: "the provider does not start",
	InvalidMethod: "invalid method", ShuttingDown: "the WMI service is shutting down",
	DCOMDenied: "access denied by DCOM", ServerUnavail: "the WMI service does not answer",
	CallFailed: "the call to the WMI service failed", Disconnected: "the WMI service has gone",
	UnknownName: "unknown name", Unexpected: "unexpected failure",
}

func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return fmt.Sprintf("%s (0x%08X)", name, uint32(c))
	}
	return fmt.Sprintf("0x%08X", uint32(c))
}

func (f *Fault) Error() string {
	msg := "WMI: " + f.Op
	if f.Class != "" {
		msg += " of " + f.Class
	}
	if f.Namespace != "" && !strings.Contains(f.Op, f.Namespace) {
		msg += " in " + f.Namespace
	}
	msg += ": " + f.Code.String()
	if text := strings.TrimSpace(f.Text); text != "" {
		msg += ": " + text
	}
	return msg
}

// Is makes errors.Is(err, hyperv.NotFound) work on faults.
func (f *Fault) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == f.Code
}

func (c Code) Error() string { return c.String() }
