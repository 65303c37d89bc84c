package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// maxCertificates limits how many certificates are shown to people.
const maxCertificates = 5

// WriteInfo writes the state of a cluster: the verdict first, the next command last.
func WriteInfo(w io.Writer, in *inspect.Info, now time.Time, s Style) error {
	p := paint(s.Colour)
	fmt.Fprintf(w, "%s is %s: %s\n", p.in(bold, in.Name), p.in(colourOfVerdict(in.Verdict), string(in.Verdict)), in.Summary)
	if len(in.Warnings) > 0 {
		fmt.Fprintln(w)
		WriteDiagnostics(w, in.Warnings, s)
	}
	fmt.Fprintf(w, "\nKubernetes:  %s, %s\n", in.Kubernetes, strings.ToLower(cmp.Or(string(in.Phase), "pending")))
	through := ""
	if in.Endpoint.Through != "" {
		through = ", read through " + in.Endpoint.Through
	}
	fmt.Fprintf(w, "Endpoint:    %s, mode %s%s\n", in.Endpoint.Address, in.Endpoint.Mode, through)
	parts := []func(io.Writer, *inspect.Info) error{
		writeInfoNodes, writeInfoResources, writeInfoEtcd, writeInfoCertificates(now), writeInfoAddOns, writeInfoOperations(now),
	}
	for _, part := range parts {
		if err := part(w, in); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nNext: %s\n", in.Next)
	return err
}

func formatOK(ok bool) string {
	if ok {
		return "ok"
	}
	return "NO"
}

// formatState formats a state for a column. The warnings have the details.
func formatState(state string) string {
	if state == "" {
		return "-"
	}
	return formatOK(state == "ok")
}

func writeInfoNodes(w io.Writer, in *inspect.Info) error {
	var rows [][]string
	for _, n := range in.Nodes {
		var roles []string
		for _, r := range n.Roles {
			roles = append(roles, string(r))
		}
		rows = append(rows, []string{
			n.Name, cmp.Or(strings.Join(roles, ","), "-"), cmp.Or(n.Version, "-"), n.Ready, cmp.Or(n.Address, "-"),
			formatState(n.Host), formatState(n.Endpoint),
		})
	}
	fmt.Fprintln(w)
	return WriteTable(w, []string{"NODE", "ROLES", "VERSION", "READY", "ADDRESS", "SSH", "API"}, rows)
}

// writeInfoResources writes the resources of nodes that pods may use, of the total.
func writeInfoResources(w io.Writer, in *inspect.Info) error {
	var rows [][]string
	for _, n := range in.Nodes {
		if n.ResourcesFrom == "" {
			continue
		}
		a, c := n.Allocatable, n.Capacity
		rows = append(rows, []string{
			n.Name, formatShare(a.CPU, c.CPU, formatQuantity), formatShare(a.Memory, c.Memory, formatSize),
			formatShare(a.Disk, c.Disk, formatSize), formatShare(a.Pods, c.Pods, formatQuantity),
		})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return WriteTable(w, []string{"NODE", "CPU", "MEMORY", "DISK", "PODS"}, rows)
}

// formatShare formats "3.5 of 4", or one number if both are equal or one is unknown.
func formatShare(some, all string, words func(resource.Quantity) string) string {
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

func formatQuantity(q resource.Quantity) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", q.AsApproximateFloat64()), ".0")
}

func formatSize(q resource.Quantity) string { return bytesize.Format(q.Value()) }

func writeInfoEtcd(w io.Writer, in *inspect.Info) error {
	if len(in.Etcd.Members) == 0 || in.Etcd.Message != "" {
		_, err := fmt.Fprintf(w, "\netcd (%s): %s\n", in.Etcd.Type, cmp.Or(in.Etcd.Message, "no known members"))
		return err
	}
	var rows [][]string
	for _, m := range in.Etcd.Members {
		rows = append(rows,
			[]string{cmp.Or(m.Name, m.ID), roleOfMember(m), formatOK(m.Answers), formatBytes(m.DBBytes), cmp.Or(m.Version, "-"), m.Endpoint})
	}
	fmt.Fprintln(w)
	return WriteTable(w, []string{"ETCD MEMBER", "ROLE", "REACHABLE", "SIZE", "VERSION", "ENDPOINT"}, rows)
}

func writeInfoCertificates(now time.Time) func(io.Writer, *inspect.Info) error {
	return func(w io.Writer, in *inspect.Info) error {
		if len(in.Certificates) == 0 {
			return nil
		}
		var rows [][]string
		for _, c := range in.Certificates[:min(len(in.Certificates), maxCertificates)] {
			rows = append(rows, []string{formatExpiry(c.Expires, now), c.Host, c.Path})
		}
		fmt.Fprintln(w)
		if err := WriteTable(w, []string{"EXPIRES IN", "HOST", "CERTIFICATE"}, rows); err != nil {
			return err
		}
		if more := len(in.Certificates) - len(rows); more > 0 {
			fmt.Fprintf(w, "and %d more that expire later (-o json lists all)\n", more)
		}
		return nil
	}
}

func formatTimeLeft(d time.Duration) string {
	if d < 0 {
		return "EXPIRED"
	}
	return FormatAge(d)
}

func writeInfoAddOns(w io.Writer, in *inspect.Info) error {
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
	return WriteTable(w, []string{"ADD-ON", "VERSION", "READY"}, rows)
}

func writeInfoOperations(now time.Time) func(io.Writer, *inspect.Info) error {
	return func(w io.Writer, in *inspect.Info) error {
		var rows [][]string
		for _, o := range in.Operations {
			row := []string{o.ID, string(o.Phase), FormatAge(now.Sub(o.Created))}
			if o.Message != "" {
				row = append(row, oneLine(o.Message))
			}
			rows = append(rows, row)
		}
		if len(rows) == 0 {
			return nil
		}
		fmt.Fprintln(w)
		return WriteTable(w, []string{"OPERATION", "PHASE", "AGE"}, rows)
	}
}
