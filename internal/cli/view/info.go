package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/lifecycle"
)

// someCertificates limits how many certificates are shown to people.
const someCertificates = 5

// Info writes the state of a cluster: the verdict first, the next command last.
func Info(w io.Writer, in *lifecycle.Info, now time.Time, s Style) error {
	p := paint(s.Colour)
	fmt.Fprintf(w, "%s is %s: %s\n", p.in(bold, in.Name), p.in(verdictColour(in.Verdict), string(in.Verdict)), in.Summary)
	if len(in.Warnings) > 0 {
		fmt.Fprintln(w)
		Diagnostics(w, in.Warnings, s)
	}
	fmt.Fprintf(w, "\nKubernetes:  %s, %s\n", in.Kubernetes, strings.ToLower(cmp.Or(string(in.Phase), "pending")))
	through := ""
	if in.Endpoint.Through != "" {
		through = ", read through " + in.Endpoint.Through
	}
	fmt.Fprintf(w, "Endpoint:    %s, mode %s%s\n", in.Endpoint.Address, in.Endpoint.Mode, through)
	parts := []func(io.Writer, *lifecycle.Info) error{
		infoNodes, infoResources, infoEtcd, infoCertificates(now), infoAddOns, infoOperations(now),
	}
	for _, part := range parts {
		if err := part(w, in); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\n", in.Next)
	return err
}

func yes(ok bool) string {
	if ok {
		return "ok"
	}
	return "NO"
}

// answer formats a state for a column. The warnings have the details.
func answer(state string) string {
	if state == "" {
		return "-"
	}
	return yes(state == "ok")
}

func infoNodes(w io.Writer, in *lifecycle.Info) error {
	var rows [][]string
	for _, n := range in.Nodes {
		var roles []string
		for _, r := range n.Roles {
			roles = append(roles, string(r))
		}
		rows = append(rows, []string{
			n.Name, cmp.Or(strings.Join(roles, ","), "-"), cmp.Or(n.Version, "-"), n.Ready, cmp.Or(n.Address, "-"),
			answer(n.Host), answer(n.Endpoint),
		})
	}
	fmt.Fprintln(w)
	return Table(w, []string{"NODE", "ROLES", "VERSION", "READY", "ADDRESS", "SSH", "API"}, rows)
}

// infoResources writes the resources of nodes that pods may use, of the total.
func infoResources(w io.Writer, in *lifecycle.Info) error {
	var rows [][]string
	for _, n := range in.Nodes {
		if n.ResourcesFrom == "" {
			continue
		}
		a, c := n.Allocatable, n.Capacity
		rows = append(rows, []string{
			n.Name, of(a.CPU, c.CPU, cpus), of(a.Memory, c.Memory, size), of(a.Disk, c.Disk, size), of(a.Pods, c.Pods, cpus),
		})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return Table(w, []string{"NODE", "CPU", "MEMORY", "DISK", "PODS"}, rows)
}

// of formats "3.5 of 4", or one number if both are equal or one is unknown.
func of(some, all string, words func(resource.Quantity) string) string {
	var out []string
	for _, text := range []string{some, all} {
		if q, err := resource.ParseQuantity(text); err == nil {
			out = append(out, words(q))
		}
	}
	switch {
	case len(out) == 0:
		return "-"
	case len(out) == 1 || out[0] == out[1]:
		return out[0]
	}
	return out[0] + " of " + out[1]
}

func cpus(q resource.Quantity) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", q.AsApproximateFloat64()), ".0")
}

func size(q resource.Quantity) string { return bytesize.Bytes(q.Value()) }

func infoEtcd(w io.Writer, in *lifecycle.Info) error {
	if len(in.Etcd.Members) == 0 || in.Etcd.Message != "" {
		_, err := fmt.Fprintf(w, "\netcd (%s): %s\n", in.Etcd.Type, cmp.Or(in.Etcd.Message, "no known members"))
		return err
	}
	var rows [][]string
	for _, m := range in.Etcd.Members {
		rows = append(rows, []string{cmp.Or(m.Name, m.ID), memberIs(m), yes(m.Answers), bytesOf(m.DBBytes), cmp.Or(m.Version, "-"), m.Endpoint})
	}
	fmt.Fprintln(w)
	return Table(w, []string{"ETCD MEMBER", "ROLE", "REACHABLE", "SIZE", "VERSION", "ENDPOINT"}, rows)
}

func infoCertificates(now time.Time) func(io.Writer, *lifecycle.Info) error {
	return func(w io.Writer, in *lifecycle.Info) error {
		if len(in.Certificates) == 0 {
			return nil
		}
		var rows [][]string
		for _, c := range in.Certificates[:min(len(in.Certificates), someCertificates)] {
			rows = append(rows, []string{expires(c.Expires, now), c.Host, c.Path})
		}
		fmt.Fprintln(w)
		if err := Table(w, []string{"EXPIRES IN", "HOST", "CERTIFICATE"}, rows); err != nil {
			return err
		}
		if more := len(in.Certificates) - len(rows); more > 0 {
			fmt.Fprintf(w, "and %d more that expire later (-o json lists all)\n", more)
		}
		return nil
	}
}

func until(d time.Duration) string {
	if d < 0 {
		return "EXPIRED"
	}
	return Age(d)
}

func infoAddOns(w io.Writer, in *lifecycle.Info) error {
	var rows [][]string
	for _, a := range in.AddOns {
		ready := "-"
		switch {
		case a.Missing:
			ready = "missing"
		case a.Wanted >= 0:
			ready = fmt.Sprintf("%d/%d", a.Ready, a.Wanted)
		}
		rows = append(rows, []string{a.Name, a.Version, ready})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return Table(w, []string{"ADD-ON", "VERSION", "READY"}, rows)
}

func infoOperations(now time.Time) func(io.Writer, *lifecycle.Info) error {
	return func(w io.Writer, in *lifecycle.Info) error {
		var rows [][]string
		for _, o := range in.Operations {
			row := []string{o.ID, string(o.Phase), Age(now.Sub(o.Created))}
			if o.Message != "" {
				row = append(row, oneLine(o.Message))
			}
			rows = append(rows, row)
		}
		if len(rows) == 0 {
			return nil
		}
		fmt.Fprintln(w)
		return Table(w, []string{"OPERATION", "PHASE", "AGE"}, rows)
	}
}
