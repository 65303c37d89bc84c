package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
)

func TestDiagnostics_MergesFindingsOfHosts(t *testing.T) {
	refuses := func(i int) diag.Diagnostic {
		return diag.Diagnostic{
			ID: "host-unreachable", Severity: diag.Error, Host: fmt.Sprintf("w%d", i),
			Message: fmt.Sprintf("10.0.0.%d:22 refuses connections", i), Hint: "is sshd running there, and on that port?",
		}
	}
	swap := func(host string) diag.Diagnostic {
		return diag.Diagnostic{ID: "swap", Severity: diag.Warning, Host: host, Message: "swap is on"}
	}
	inRange := func(host, address string) diag.Diagnostic {
		return diag.Diagnostic{ID: "range", Severity: diag.Warning, Host: host, Message: "10.0.0.0/24 contains the address " + address}
	}
	var many diag.List
	var names []string
	for i := range 12 {
		many = append(many, refuses(i))
		names = append(names, many[i].Host)
	}
	for _, tt := range []struct {
		name, want string
		list       diag.List
	}{
		{
			"one host", "error: w1: 10.0.0.1:22 refuses connections [host-unreachable]\n    hint: is sshd running there, and on that port?\n",
			diag.List{refuses(1)},
		},
		{
			"two hosts",
			"error: w1, w2: the address of each host refuses connections [host-unreachable]\n    hint: is sshd running there, and on that port?\n",
			diag.List{refuses(1), refuses(2)},
		},
		{
			"others between",
			"w1, w3: warning: swap is on [swap]\nerror: w2: 10.0.0.2:22 refuses connections [host-unreachable]\n    " +
				"hint: is sshd running there, and on that port?\n",
			diag.List{swap("w1"), refuses(2), swap("w3")},
		},
		{
			"a range", "w1, w2: warning: 10.0.0.0/24 contains the address of each host [range]\n",
			diag.List{inRange("w1", "10.0.0.1"), inRange("w2", "10.0.0.2")},
		},
		{"no host", "warning: swap is on [swap]\nwarning: swap is on [swap]\n", diag.List{swap(""), swap("")}},
		{
			"many hosts",
			"error: 12 hosts: the address of each host refuses connections [host-unreachable]\n    " +
				"hint: is sshd running there, and on that port?\n    hosts: " + strings.Join(names, ", ") + "\n", many,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			WriteDiagnostics(&b, tt.list, Style{})
			if d := cmp.Diff(tt.want, b.String()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestPlain_OmitsStatesOfManyHosts(t *testing.T) {
	var b strings.Builder
	v := NewPlain(&b, Options{Now: func() time.Time { return epoch }})
	const hosts = 300
	for _, state := range []string{"connecting", "connected"} {
		for i := range hosts {
			v.Emit(event.Event{Type: event.Note, Host: fmt.Sprintf("w%d", i), Message: state, Time: epoch})
		}
	}
	v.Emit(event.Event{Type: event.OperationStarted, Time: epoch})
	for _, task := range []string{"swap", "runtime"} {
		for i := range hosts {
			v.Emit(event.Event{
				Type: event.StepFinished, Task: task, Title: task, Host: fmt.Sprintf("w%d", i),
				Outcome: event.Cancelled, Time: epoch,
			})
		}
	}
	v.Close()
	count := func(what string) int { return strings.Count(b.String(), what) }
	if connecting, connected, cancelled := count("connecting"), count("connected"), count("cancelled"); connecting != fewHosts ||
		connected != fewHosts || cancelled != 1 {
		t.Errorf("%d lines of connecting, %d of connected, %d of cancelled steps; want %d, %d and 1", connecting,
			connected, cancelled, fewHosts, fewHosts)
	}
	if !strings.Contains(b.String(), "300 hosts") || !strings.Contains(b.String(), "600 steps") {
		t.Errorf("the numbers of hosts and steps are not shown:\n%s", b.String())
	}
}
