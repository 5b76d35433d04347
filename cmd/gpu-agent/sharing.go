package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// showDaemons lists the MPS control daemons of a host, those of others too.
func showDaemons(out io.Writer, h *gpu.Host) {
	if h.MPS == nil || len(h.MPS.Daemons) == 0 {
		return
	}
	t := newTable(out, "\nMPS daemons")
	t.AppendHeader(table.Row{"Daemon", "Devices", "Users", "Each process", "State", "Clients"})
	t.SetColumnConfigs([]table.ColumnConfig{{Name: "State", WidthMax: 30, WidthMaxEnforcer: text.WrapSoft}})
	for i := range h.MPS.Daemons {
		d := &h.MPS.Daemons[i]
		users := "all"
		switch {
		case d.User != nil:
			users = strconv.Itoa(*d.User)
		case !d.MultiUser:
			users = "" // a daemon of somebody else does not say
		}
		state := "does not run"
		switch {
		case d.Problem != "":
			state = d.Problem
		case d.PID > 0:
			state = fmt.Sprintf("PID %d", d.PID)
		}
		clients := words.Each(d.Clients, processText)
		t.AppendRow(table.Row{cmp.Or(d.Name, "not ours"), devicesText(d.Devices), users, limitsText(d), state, strings.Join(clients, "\n")})
	}
	t.Render()
}

// limitsText is what a daemon holds each of its clients to.
func limitsText(d *gpu.MPSDaemon) string {
	var out []string
	if d.ActiveThreadPercentage > 0 {
		out = append(out, fmt.Sprintf("%g %% of threads", d.ActiveThreadPercentage))
	}
	if d.PinnedMemoryLimit > 0 {
		out = append(out, d.PinnedMemoryLimit.String())
	}
	return cmp.Or(strings.Join(out, "\n"), "no limit")
}

// showShares lists the shares that claims tell of, and what containers ask for.
func showShares(out io.Writer, h *gpu.Host) {
	t := newTable(out, "\nShares")
	t.AppendHeader(table.Row{"Share", "Devices", "Mode", "Isolation", "Enforcement", "CDI device"})
	var notes []string
	claimed := map[string]bool{}
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		s := c.Want.Share
		if s == nil {
			continue
		}
		claimed[s.Name] = true
		facts := placement.DescribeShare(h, s)
		device := "not handed over"
		if handed, ok := h.HandedShare(s.Name); ok {
			device = handed.CDIDevice
			if handed.Note != "" {
				notes = append(notes, s.Name+": "+handed.Note)
			}
		}
		if who := placement.PastLimit(h, s); len(who) > 0 {
			notes = append(notes, s.Name+": its memory limit does not hold "+strings.Join(who, ", "))
		}
		t.AppendRow(table.Row{s.Name, devicesText(s.Devices), facts.Mode, facts.Isolation, facts.Enforcement, device})
	}
	for _, handed := range h.Shares {
		if !claimed[handed.Name] {
			t.AppendRow(table.Row{handed.Name, "", "no claim", "", "", handed.CDIDevice})
		}
	}
	if t.Length() > 0 {
		t.Render()
	}
	for _, n := range notes {
		_, _ = fmt.Fprintln(out, n)
	}
}

// devicesText lists devices below each other, in the order in which processes count them.
func devicesText(devices []gpu.SharedDevice) string {
	var lines []string
	for _, d := range devices {
		lines = append(lines, d.GPU)
		if d.Instance != nil {
			lines = append(lines, fmt.Sprintf("  %s@%d", d.Instance.Profile, d.Instance.Start))
		}
	}
	return strings.Join(lines, "\n")
}
