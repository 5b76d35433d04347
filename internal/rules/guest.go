package rules

import (
	"fmt"
	"strconv"
	"strings"
)

func checkSupportedGuest(r *run) {
	a := r.Plan.Want.Assignment
	if a == nil || a.Partition == nil {
		return
	}
	at, ok := r.Locate(a)
	if !ok || at.VM.Guest == "" || takesPartitions(at.VM.Guest) {
		return
	}
	r.reportVM(at, Finding{
		Path:  "vm",
		Title: "The guest is not listed for GPU partitions",
		Found: fmt.Sprintf("%s on %s runs %s.", vmText(at.VM), hostText(at.Key), at.VM.Guest),
		Wanted: fmt.Sprintf("%s gives it a GPU partition. Microsoft lists Windows 10 or later, Windows Server 2019 or later, and Ubuntu 18.04, "+
			"20.04 and 22.04 LTS.", r.label()),
		Fix: "Upgrade the guest, or give it a whole GPU (`pool`, `device`) if its vendor has a driver for it.",
	})
}

// takesPartitions tells whether a guest is listed. Later Ubuntus pass, since lists are late, and
// of a Windows Server without a year in its name nobody can say that it is not listed.
func takesPartitions(guest string) bool {
	first := func(after string) (number float64, ok bool) {
		word, _, _ := strings.Cut(after, " ")
		if parts := strings.SplitN(word, ".", 3); len(parts) == 3 { // Ubuntu 22.04.5
			word = parts[0] + "." + parts[1]
		}
		n, err := strconv.ParseFloat(word, 64)
		return n, err == nil
	}
	if after, ok := strings.CutPrefix(guest, "Windows Server "); ok {
		year, told := first(after)
		return !told || year >= 2019
	}
	if after, ok := strings.CutPrefix(guest, "Windows "); ok {
		version, told := first(after)
		return told && version >= 10
	}
	if after, ok := strings.CutPrefix(guest, "Ubuntu "); ok {
		version, told := first(after)
		return !told || version >= 18.04
	}
	return false
}
