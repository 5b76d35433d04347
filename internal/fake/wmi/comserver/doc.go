// Package comserver serves a machine of package fakewmi through COM, in the process,
// as WMI's automation objects: whoever asks for WbemScripting.SWbemLocator gets the
// machine's. It exists on Windows only, and Wine is Windows enough, so that what lies
// below the seam hyperv.WMI is tested by running it: github.com/microsoft/wmi,
// go-ole, variants, arrays, reference counts and codes of exceptions.
//
// It is as strict as the real thing: names, numbers of arguments and their types, and
// methods are not properties. The objects answer to IDispatch only, as scripts use
// them, and have none of the slots of their dual interfaces.
package comserver
