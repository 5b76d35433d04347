package wmi

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// Codes of COM and WMI that matter only here.
const (
	exception       hyperv.Code = 0x80020009 // DISP_E_EXCEPTION: the code is in EXCEPINFO
	tooLate         hyperv.Code = 0x80010119 // RPC_E_TOO_LATE
	serverDied      hyperv.Code = 0x80010007 // RPC_E_SERVER_DIED
	notConnected    hyperv.Code = 0x800401FD // CO_E_OBJNOTCONNECTED
	typeMismatch    hyperv.Code = 0x80041005 // WBEM_E_TYPE_MISMATCH
	transportFailed hyperv.Code = 0x80041015 // WBEM_E_TRANSPORT_FAILURE
)

// fault is an error of the library, of COM or of our own as what the seam promises.
// The end of a context is no fault.
func fault(op string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*hyperv.Fault](err); ok {
		if f.Op == "" {
			f.Op = op
		}
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("WMI: %s: %w", op, err)
	}
	f := &hyperv.Fault{Code: codeOf(err), Op: op, Text: err.Error()}
	if e, ok := errors.AsType[*ole.OleError](err); ok {
		f.Text = e.Description()
		if f.Text == "<nil>" { // go-ole's way to say that there is none
			f.Text = ""
		}
	}
	return f
}

// codeOf finds the code that tells what failed. Automation puts it into EXCEPINFO and
// answers only that there was an exception.
func codeOf(err error) hyperv.Code {
	if f, ok := errors.AsType[*hyperv.Fault](err); ok {
		return f.Code
	}
	e, ok := errors.AsType[*ole.OleError](err)
	if !ok {
		return hyperv.Unexpected
	}
	code := hyperv.Code(e.Code())
	if info, ok := errors.AsType[ole.EXCEPINFO](e.SubError()); ok && code == exception && info.SCODE() != 0 {
		return hyperv.Code(info.SCODE())
	}
	return code
}

// gone tells whether the session that an error came from is of no more use: the WMI
// service has stopped, or the way to it has been lost.
func gone(err error) bool {
	switch codeOf(err) {
	case hyperv.ServerUnavail, hyperv.CallFailed, hyperv.Disconnected, hyperv.ShuttingDown,
		serverDied, notConnected, transportFailed:
		return true
	}
	return false
}

// unexpected is a fault that no documentation foresees.
func unexpected(format string, args ...any) error {
	return &hyperv.Fault{Code: hyperv.Unexpected, Text: fmt.Sprintf(format, args...)}
}

// guard runs f and makes a panic of the library a fault.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = unexpected("panic: %v", p)
		}
	}()
	return f()
}
