package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/lifecycle/inspect"
)

// colourOfVerdict returns the colour of a verdict.
func colourOfVerdict(v inspect.Verdict) string {
	return map[inspect.Verdict]string{inspect.Healthy: green, inspect.Degraded: yellow, inspect.Down: red, inspect.Absent: red}[v]
}

// WriteEtcdMembers writes the list of a cluster's etcd members: the verdict first, the
// next command last.
func WriteEtcdMembers(w io.Writer, r *inspect.EtcdReport, s Style) error {
	var rows [][]string
	for _, m := range r.Etcd.Members {
		rows = append(rows, []string{
			cmp.Or(m.Name, "-"), cmp.Or(m.ID, "-"), roleOfMember(m), formatOK(m.Answers), cmp.Or(m.Version, "-"),
			cmp.Or(m.Endpoint, "-"), cmp.Or(strings.Join(m.PeerURLs, ","), "-"), formatMemberHost(r, m),
		})
	}
	return writeEtcdReport(w, r, s, []string{"MEMBER", "ID", "ROLE", "REACHABLE", "VERSION", "CLIENT URL", "PEER URLS", "SSH"}, rows)
}

// WriteEtcdHealth writes the health of a cluster's etcd members: the verdict first, the
// next command last.
func WriteEtcdHealth(w io.Writer, r *inspect.EtcdReport, s Style) error {
	var rows [][]string
	for _, m := range r.Etcd.Members {
		index, behind := "-", "-"
		if m.Answers {
			index, behind = strconv.FormatUint(m.RaftIndex, 10), strconv.FormatUint(m.Behind, 10)
		}
		rows = append(rows, []string{
			cmp.Or(m.Name, m.Endpoint), roleOfMember(m), formatOK(m.Answers), formatBytes(m.DBBytes),
			formatBytes(m.InUseBytes), formatBytes(m.QuotaBytes),
			index, behind, cmp.Or(strings.Join(m.Alarms, ","), "-"), formatMemberHost(r, m), formatFreeDisk(r, m),
		})
	}
	head := []string{"MEMBER", "ROLE", "REACHABLE", "SIZE", "IN USE", "QUOTA", "INDEX", "BEHIND", "ALARMS", "SSH", "DISK FREE"}
	return writeEtcdReport(w, r, s, head, rows)
}

func writeEtcdReport(w io.Writer, r *inspect.EtcdReport, s Style, head []string, rows [][]string) error {
	p := paint(s.Colour)
	fmt.Fprintf(w, "etcd of %s is %s: %s\n", p.in(bold, r.Name), p.in(colourOfVerdict(r.Verdict), string(r.Verdict)), r.Summary)
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w)
		WriteDiagnostics(w, r.Warnings, s)
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := WriteTable(w, head, rows); err != nil {
			return err
		}
	}
	about := "type " + r.Etcd.Type
	if r.Etcd.ClusterID != "" {
		about += ", cluster " + r.Etcd.ClusterID
	}
	if r.Etcd.Revision > 0 {
		about += ", revision " + strconv.FormatInt(r.Etcd.Revision, 10)
	}
	if r.Etcd.Through != "" {
		about += ", read through " + r.Etcd.Through
	}
	fmt.Fprintf(w, "\n%s\n", about)
	_, err := fmt.Fprintf(w, "\nNext: %s\n", r.Next)
	return err
}

// roleOfMember returns the role of a member: leader, learner or follower; "-" if it
// does not answer.
func roleOfMember(m inspect.EtcdMember) string {
	switch {
	case m.Leader:
		return "leader"
	case m.Learner:
		return "learner"
	case !m.Answers:
		return "-"
	}
	return "follower"
}

func formatBytes(n int64) string {
	if n <= 0 {
		return "-"
	}
	return bytesize.Format(n)
}

// formatMemberHost returns whether the host of a member is reachable over SSH, for a
// table; "-" if the member's host is unknown.
func formatMemberHost(r *inspect.EtcdReport, m inspect.EtcdMember) string {
	if i := findMemberHost(r, m); i >= 0 {
		return formatState(r.Hosts[i].Host)
	}
	return "-"
}

func formatFreeDisk(r *inspect.EtcdReport, m inspect.EtcdMember) string {
	if i := findMemberHost(r, m); i >= 0 && r.Hosts[i].TotalBytes > 0 {
		return bytesize.Format(r.Hosts[i].FreeBytes)
	}
	return "-"
}

func findMemberHost(r *inspect.EtcdReport, m inspect.EtcdMember) int {
	return slices.IndexFunc(r.Hosts, func(h inspect.EtcdHost) bool { return m.Name != "" && h.Name == m.Name })
}
