//go:build linux

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// A Status is the status that a member reports.
type Status struct {
	Header struct {
		MemberID uint64 `json:"member_id"`
		Revision int64  `json:"revision"`
	} `json:"header"`
	Version string   `json:"version"`
	Leader  uint64   `json:"leader"`
	DBSize  int64    `json:"dbSize"`
	InUse   int64    `json:"dbSizeInUse"`
	Quota   int64    `json:"dbSizeQuota"`
	Index   uint64   `json:"raftIndex"`
	Applied uint64   `json:"raftAppliedIndex"`
	Errors  []string `json:"errors"`
	Learner bool     `json:"isLearner,omitempty"`
	// Storage is the minor version of etcd that can read its data, and Downgrade the
	// target of a started downgrade.
	Storage   string `json:"storageVersion"`
	Downgrade struct {
		Enabled bool   `json:"enabled"`
		Target  string `json:"targetVersion"`
	} `json:"downgradeInfo"`
}

func (s Status) isLeader() bool { return s.Leader != 0 && s.Leader == s.Header.MemberID }

// alarmOf reports whether any member has raised an alarm: each member reports the alarms
// of all.
func (s Status) alarmOf(which string) bool {
	for _, said := range s.Errors {
		if strings.Contains(said, "alarm:") && strings.Contains(said, which) {
			return true
		}
	}
	return false
}

// Problem returns a problem of a member other than a full database; "" if there is none.
func (s Status) Problem() string {
	for _, said := range s.Errors {
		if !(strings.Contains(said, "alarm:") && strings.Contains(said, "NOSPACE")) {
			return strings.TrimSpace(said)
		}
	}
	if s.Leader == 0 {
		return "it has no leader"
	}
	return ""
}

// QueryStatus reads the status of one member.
func QueryStatus(ctx context.Context, h *host.Host, o op.EtcdClient, endpoint string) (Status, error) {
	out, err := runEtcdctl(ctx, h, o, endpoint, "endpoint", "status", "-w", "json")
	if err != nil {
		return Status{}, err
	}
	var all []struct {
		Status Status `json:"Status"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		return Status{}, fmt.Errorf("reading the status of %s: etcdctl returned %.100q", endpoint, out)
	}
	return all[0].Status, nil
}
