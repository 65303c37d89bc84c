package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/lifecycle"
)

// verdictColour returns the colour of a verdict.
func verdictColour(v lifecycle.Verdict) string {
	return map[lifecycle.Verdict]string{lifecycle.Healthy: green, lifecycle.Degraded: yellow, lifecycle.Down: red, lifecycle.Absent: red}[v]
}

// EtcdMembers writes the list of a cluster's etcd members: the verdict first, the
// next command last.
func EtcdMembers(w io.Writer, r *lifecycle.EtcdReport, s Style) error {
	var rows [][]string
	for _, m := range r.Etcd.Members {
		rows = append(rows, []string{
			cmp.Or(m.Name, "-"), cmp.Or(m.ID, "-"), memberIs(m), yes(m.Answers), cmp.Or(m.Version, "-"),
			cmp.Or(m.Endpoint, "-"), cmp.Or(strings.Join(m.PeerURLs, ","), "-"), hostOf(r, m),
		})
	}
	return etcdReport(w, r, s, []string{"MEMBER", "ID", "ROLE", "REACHABLE", "VERSION", "CLIENT URL", "PEER URLS", "SSH"}, rows)
}

// EtcdHealth writes the health of a cluster's etcd members: the verdict first, the
// next command last.
func EtcdHealth(w io.Writer, r *lifecycle.EtcdReport, s Style) error {
	var rows [][]string
	for _, m := range r.Etcd.Members {
		index, behind := "-", "-"
		if m.Answers {
			index, behind = strconv.FormatUint(m.RaftIndex, 10), strconv.FormatUint(m.Behind, 10)
		}
		rows = append(rows, []string{
			cmp.Or(m.Name, m.Endpoint), memberIs(m), yes(m.Answers), bytesOf(m.DBBytes), bytesOf(m.InUseBytes), bytesOf(m.QuotaBytes),
			index, behind, cmp.Or(strings.Join(m.Alarms, ","), "-"), hostOf(r, m), diskOf(r, m),
		})
	}
	head := []string{"MEMBER", "ROLE", "REACHABLE", "SIZE", "IN USE", "QUOTA", "INDEX", "BEHIND", "ALARMS", "SSH", "DISK FREE"}
	return etcdReport(w, r, s, head, rows)
}

func etcdReport(w io.Writer, r *lifecycle.EtcdReport, s Style, head []string, rows [][]string) error {
	p := paint(s.Colour)
	fmt.Fprintf(w, "etcd of %s is %s: %s\n", p.in(bold, r.Name), p.in(verdictColour(r.Verdict), string(r.Verdict)), r.Summary)
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w)
		Diagnostics(w, r.Warnings, s)
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		if err := Table(w, head, rows); err != nil {
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

// memberIs returns the role of a member: leader, learner or follower; "-" if it
// does not answer.
func memberIs(m lifecycle.EtcdMember) string {
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

func bytesOf(n int64) string {
	if n <= 0 {
		return "-"
	}
	return bytesize.Bytes(n)
}

// hostOf returns whether the host of a member is reachable over SSH, for a table;
// "-" if the member's host is unknown.
func hostOf(r *lifecycle.EtcdReport, m lifecycle.EtcdMember) string {
	if i := memberHost(r, m); i >= 0 {
		return answer(r.Hosts[i].Host)
	}
	return "-"
}

func diskOf(r *lifecycle.EtcdReport, m lifecycle.EtcdMember) string {
	if i := memberHost(r, m); i >= 0 && r.Hosts[i].TotalBytes > 0 {
		return bytesize.Bytes(r.Hosts[i].FreeBytes)
	}
	return "-"
}

func memberHost(r *lifecycle.EtcdReport, m lifecycle.EtcdMember) int {
	return slices.IndexFunc(r.Hosts, func(h lifecycle.EtcdHost) bool { return m.Name != "" && h.Name == m.Name })
}
