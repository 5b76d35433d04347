package fakewmi

import (
	"strconv"
	"strings"
)

func registryOperations() map[string]operation {
	return map[string]operation{
		"GetDWORDValue":  (*invocation).dwordValue,
		"GetStringValue": (*invocation).stringValue,
	}
}

// What StdRegProv answers for what is not there and for a value of another type.
const (
	fileNotFound      = 2
	wrongRegistryType = uint32(typeMismatch)
)

const localMachine = 0x80000002

// registryValue is a string or a number of HKEY_LOCAL_MACHINE, nil for none.
func (c *invocation) registryValue() any {
	hive, given := c.in.number("hDefKey")
	if given && hive != localMachine {
		return nil
	}
	policy := func(b *bool) any {
		switch {
		case b == nil:
			return nil
		case *b:
			return uint64(1)
		default:
			return uint64(0)
		}
	}
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	switch key := fold(strings.Trim(c.in.text("sSubKeyName"), `\`)) + `\` + fold(c.in.text("sValueName")); key {
	case `software\policies\microsoft\windows\hyperv\requiresecuredeviceassignment`:
		return policy(c.host.Policies.RequireSecureDeviceAssignment)
	case `software\policies\microsoft\windows\hyperv\requiresupporteddeviceassignment`:
		return policy(c.host.Policies.RequireSupportedDeviceAssignment)
	case `software\microsoft\windows nt\currentversion\displayversion`:
		return text(c.host.OS.Version)
	case `software\microsoft\windows nt\currentversion\productname`:
		return text(c.host.OS.Name)
	case `software\microsoft\windows nt\currentversion\currentbuild`:
		return strconv.Itoa(c.host.OS.Build)
	default:
		return nil
	}
}

func (c *invocation) dwordValue() error {
	switch v := c.registryValue().(type) {
	case uint64:
		return c.out.Set("uValue", v)
	case nil:
		return refuse(fileNotFound, "there is no such value")
	default:
		return refuse(wrongRegistryType, "the value is no number")
	}
}

func (c *invocation) stringValue() error {
	switch v := c.registryValue().(type) {
	case string:
		return c.out.Set("sValue", v)
	case nil:
		return refuse(fileNotFound, "there is no such value")
	default:
		return refuse(wrongRegistryType, "the value is no string")
	}
}
