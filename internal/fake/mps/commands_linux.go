package fakemps

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// The daemon counts devices up to here, whether there are any or not.
const mostDevices = 32

// command is one that a daemon takes. Errors are mostly for the log.
func (d *daemon) command(uid int, words []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, args := words[0], words[1:]
	if d.b.Driver >= 550 && uid != 0 && uid != os.Getuid() && strings.HasPrefix(name, "set_") {
		return fmt.Sprintf("Insufficient privileges for UID %d", uid)
	}
	switch name {
	case "get_default_active_thread_percentage":
		return percent(d.threads)
	case "set_default_active_thread_percentage":
		d.setThreads(&d.threads, args[0])
		return percent(d.threads)
	case "get_default_client_priority":
		return d.priority
	case "set_default_client_priority":
		if args[0] != "0" && args[0] != "1" {
			return "Invalid priority value - must be 0 or 1!"
		}
		d.priority = args[0]
		return ""
	case "get_default_device_pinned_mem_limit":
		return d.limit(d.limits, args[0])
	case "set_default_device_pinned_mem_limit":
		d.setLimit(d.limits, args[0], args[1])
		return ""
	case "get_server_list":
		var pids []string
		for _, s := range d.servers {
			pids = append(pids, strconv.Itoa(s.pid))
		}
		return strings.Join(pids, "\n")
	case "sm_partition", "lspart":
		if d.b.Driver >= firstStatic {
			return d.partition(name, args)
		}
	case "start_server":
		d.startServer(number(args[1]))
		return ""
	}
	return d.ofServer(name, args)
}

// ofServer is a command about one server.
func (d *daemon) ofServer(name string, args []string) string {
	known := map[string]bool{
		"get_active_thread_percentage": true, "set_active_thread_percentage": true,
		"get_device_pinned_mem_limit": true, "set_device_pinned_mem_limit": true,
		"get_client_list": true, "terminate_client": true, "shutdown_server": true, "get_server_status": d.b.Driver >= 550,
	}
	if !known[name] || len(args) == 0 {
		return fmt.Sprintf("Unknown command %q", name)
	}
	s := d.server(number(args[0]))
	if s == nil {
		return fmt.Sprintf("Server %s not found", args[0])
	}
	switch name {
	case "get_active_thread_percentage":
		return percent(s.threads)
	case "set_active_thread_percentage":
		d.setThreads(&s.threads, args[1])
		return percent(s.threads)
	case "get_device_pinned_mem_limit":
		return d.limit(s.limits, args[1])
	case "set_device_pinned_mem_limit":
		d.setLimit(s.limits, args[1], args[2])
		return ""
	case "get_client_list":
		var pids []string
		for pid := range s.clients {
			pids = append(pids, strconv.Itoa(pid))
		}
		return strings.Join(pids, "\n")
	case "get_server_status":
		if d.b.Faults {
			return "FAULT"
		}
		return "ACTIVE"
	case "terminate_client":
		if c := s.clients[number(args[1])]; c != nil && !d.b.Clings {
			fmt.Fprintln(c, "terminated")
			c.Close()
		}
		return ""
	default: // shutdown_server
		s.closing = true
		if len(s.clients) == 0 {
			d.endServer(s)
		}
		return ""
	}
}

func percent(p float64) string { return strconv.FormatFloat(p, 'f', 1, 64) }

func (d *daemon) setThreads(at *float64, text string) {
	p, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || p <= 0 || p > 100 {
		d.say("Invalid percentage, expected between (0.0, 100.0]")
		return
	}
	*at = math.Round(p*10) / 10
}

func (d *daemon) limit(limits map[int]string, device string) string {
	n := number(device)
	if n < 0 || n >= mostDevices {
		d.say("Invalid device ordinal!")
		return ""
	}
	if limits[n] == "" {
		d.say("No default pinned memory limit set for the device!")
	}
	return limits[n]
}

// setLimit keeps what it makes of a value: whole GiB from 1 GiB on, and MiB of everything
// without a unit.
func (d *daemon) setLimit(limits map[int]string, device, value string) {
	n := number(device)
	if strings.Contains(device, "-") {
		delete(limits, 0) // a UUID is taken for device 0, and its value is lost
		return
	}
	if n < 0 || n >= mostDevices {
		d.say("Invalid device ordinal!")
		return
	}
	digits := strings.TrimRight(value, "GMKTX")
	amount := number(digits)
	switch unit := strings.TrimPrefix(value, digits); {
	case amount == 0:
		delete(limits, n)
	case unit == "G":
		limits[n] = digits + "G"
	case amount >= 1024:
		limits[n] = strconv.Itoa(amount/1024) + "G"
	default:
		limits[n] = digits + "M"
	}
}
