//go:build linux

package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/internal/node/executor/health"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/program"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/op"
)

// MemberOp executes op.EtcdMember.
type MemberOp struct{ Op op.EtcdMember }

func (x *MemberOp) Paths() []string {
	if x.Op.Service == nil {
		return (&program.ExecOp{Op: x.Op.Join}).Paths()
	}
	return append((&systemd.UnitOp{Op: x.Op.Service.Unit}).Paths(), x.Op.Service.Initial)
}

// learnTimes is how much longer a new member can take to get the data of the others.
const learnTimes = 15

// Member is an entry of the member list, as `etcdctl -w json` prints it.
type Member struct {
	ID       uint64   `json:"ID"`
	Name     string   `json:"name"` // "" before its first start
	PeerURLs []string `json:"peerURLs"`
	// ClientURLs is empty before its first start.
	ClientURLs []string `json:"clientURLs,omitempty"`
	Learner    bool     `json:"isLearner"`
}

// displayName returns the name of a member, or its URL as long as it has none.
func (m Member) displayName() string { return cmp.Or(m.Name, strings.Join(m.PeerURLs, ",")) }

// runEtcdctl queries one member, by argv.
func runEtcdctl(ctx context.Context, h *host.Host, o op.EtcdClient, endpoint string, args ...string) (string, error) {
	return h.Output(ctx, slices.Concat(EtcdctlArgs(h, o, endpoint), []string{"--command-timeout=8s"}, args)...)
}

// EtcdctlArgs returns the command line, without a time limit.
func EtcdctlArgs(h *host.Host, o op.EtcdClient, endpoint string) []string {
	return []string{
		o.Program, "--endpoints=" + endpoint, "--dial-timeout=3s",
		"--cacert=" + h.DiskPath(o.CA), "--cert=" + h.DiskPath(o.Cert), "--key=" + h.DiskPath(o.Key),
	}
}

// A membership is a host's membership in the cluster.
type membership struct {
	self   *Member // nil: the cluster does not know the host
	others []Member
	from   string // the endpoint that returned it
	// data reports whether the member's data are on the host.
	data bool
}

func (m membership) isVoter() bool {
	return m.data && m.self != nil && !m.self.Learner && m.self.Name != ""
}

// etcdMembers returns all members, and the endpoint that returned them: a member that is
// down, or is a learner and cannot answer, is skipped.
func etcdMembers(ctx context.Context, h *host.Host, o op.EtcdClient) (all []Member, from string, err error) {
	err = errors.New("no other member can be queried")
	for _, endpoint := range o.Endpoints {
		var out string
		if out, err = runEtcdctl(ctx, h, o, endpoint, "member", "list", "-w", "json"); err != nil {
			continue
		}
		var list struct {
			Members []Member `json:"members"`
		}
		if err = json.Unmarshal([]byte(out), &list); err == nil {
			return list.Members, endpoint, nil
		}
	}
	return nil, "", fmt.Errorf("listing etcd members: %w", err)
}

// readMembership queries the other members.
func readMembership(ctx context.Context, h *host.Host, o op.EtcdMember) (m membership, err error) {
	m.data = host.Exists(h.DiskPath(filepath.Join(o.Data, "member")))
	all, from, err := etcdMembers(ctx, h, o.EtcdClient)
	m.from = from
	for _, one := range all {
		if slices.Contains(one.PeerURLs, o.PeerURL) {
			m.self = &one
		} else {
			m.others = append(m.others, one)
		}
	}
	return m, err
}

// Check checks the vote first: once the member votes, the program that adds it
// only runs again if its inputs have changed.
func (x *MemberOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if o.Service == nil {
		if err := program.CheckExecName(o.Join); err != nil {
			return host.CheckResult{}, err
		}
	}
	if _, err := h.FindProgram(o.Program); err != nil {
		return host.CheckResult{Change: "join"}, nil
	}
	for _, f := range []string{o.CA, o.Cert, o.Key} {
		if !host.Exists(h.DiskPath(f)) {
			return host.CheckResult{Change: "join"}, nil
		}
	}
	m, err := readMembership(ctx, h, o)
	switch {
	case ctx.Err() != nil:
		return host.CheckResult{}, err
	case err != nil: // possibly by the time it is applied
		return host.CheckResult{Change: "check again: " + host.FailureOf(err).Message}, nil
	case m.self == nil && m.data:
		return host.CheckResult{}, m.rejectRemoved(o)
	case !m.isVoter():
		return host.CheckResult{Change: "join"}, nil
	case o.Service != nil:
		return host.CheckResult{}, nil
	}
	o.Join.Conclusive = true
	return program.CheckExec(ctx, h, o.Join)
}

func (x *MemberOp) Apply(ctx context.Context, h *host.Host, res *op.Result) error {
	o := x.Op
	m, err := readMembership(ctx, h, o)
	if err != nil {
		return err
	}
	if m.isVoter() {
		if o.Service != nil {
			return nil
		}
		rec, _, err := program.ReadExecRecord(h, o.Join.Name)
		if err != nil {
			return err
		}
		// After a run that was interrupted, or failed in its last steps, the vote is the
		// wanted result.
		o.Join.Conclusive = !rec.Done
		return program.Execute(ctx, h, o.Join, nil, res)
	}
	if err := m.rejectRemoved(o); err != nil {
		return err
	}
	if err := clearMember(ctx, h, o, m); err != nil {
		return err
	}
	if err := requireNoOtherLearner(ctx, h, o); err != nil {
		return err
	}
	if o.Service != nil {
		err = joinByService(ctx, h, o)
	} else {
		err = program.Execute(ctx, h, o.Join, nil, res)
	}
	if err != nil {
		return err
	}
	return awaitMember(ctx, h, o, h.EtcdTime, func(m membership) error {
		if m.isVoter() {
			return nil
		}
		return &op.Error{Reason: op.ReasonEtcdNoVote, Message: fmt.Sprintf("%s was added to etcd, but is not a voting member", o.Name)}
	})
}

// rejectRemoved rejects a host with data of a member that is not in the cluster: etcd
// would not accept it with these data, and a learner that does not start blocks others.
func (m membership) rejectRemoved(o op.EtcdMember) error {
	if m.self != nil || !m.data {
		return nil
	}
	return &op.Error{
		Reason: op.ReasonEtcdRemoved,
		Message: fmt.Sprintf("%s has data, but etcd does not know the member %s: it was removed, or the data are from another cluster",
			o.Data, o.Name),
	}
}

// clearMember removes a learner that has started elsewhere, or here with data that are
// now missing: etcd knows its progress, and it could not start without the data. A voting
// member counts for the majority, so it is not removed on a guess.
func clearMember(ctx context.Context, h *host.Host, o op.EtcdMember, m membership) error {
	switch {
	case m.self == nil, m.data, m.self.Name == "", m.isExpected(o):
		return nil
	case !m.self.Learner:
		return &op.Error{
			Reason:  op.ReasonEtcdDataLost,
			Message: fmt.Sprintf("etcd needs the vote of %s (%s), but its data are not in %s", o.Name, o.PeerURL, o.Data),
		}
	}
	if _, err := runEtcdctl(ctx, h, o.EtcdClient, m.from, "member", "remove", strconv.FormatUint(m.self.ID, 16)); err != nil {
		return fmt.Errorf("removing the learner %s, whose data are lost, from etcd: %w", o.Name, err)
	}
	return nil
}

// requireNoOtherLearner waits until no other member is being added.
func requireNoOtherLearner(ctx context.Context, h *host.Host, o op.EtcdMember) error {
	return awaitMember(ctx, h, o, h.EtcdTime, func(m membership) error {
		i := slices.IndexFunc(m.others, func(other Member) bool { return other.Learner })
		if i < 0 || m.self != nil {
			return nil
		}
		return &op.Error{
			Reason:  op.ReasonEtcdBusy,
			Message: fmt.Sprintf("etcd accepts only one new member at a time, and %s is joining now", m.others[i].PeerURLs),
		}
	})
}

// awaitMember queries until want returns no error for the answer. The last error is
// returned when the time is over.
func awaitMember(ctx context.Context, h *host.Host, o op.EtcdMember, within time.Duration, want func(membership) error) error {
	deadline := time.Now().Add(within)
	for {
		m, err := readMembership(ctx, h, o)
		if err == nil {
			err = want(m)
		}
		if err == nil || !health.TryAgain(ctx, deadline) {
			return err
		}
	}
}

// isExpected reports whether the others have known a member from the beginning, and it has
// never been one of them.
func (m membership) isExpected(o op.EtcdMember) bool {
	return o.Service != nil && m.self != nil && !m.self.Learner && len(m.self.ClientURLs) == 0
}

// joinByService adds a member as a learner, starts it and promotes it. It continues with a
// member that was already added, wherever that was interrupted.
func joinByService(ctx context.Context, h *host.Host, o op.EtcdMember) error {
	m, err := readMembership(ctx, h, o)
	if err == nil && m.self == nil {
		if err := addMember(ctx, h, o); err != nil {
			return err
		}
		m, err = readMembership(ctx, h, o)
	}
	switch {
	case err != nil:
		return err
	case m.self == nil:
		return &op.Error{Reason: op.ReasonEtcdNoVote, Message: fmt.Sprintf("%s was added to etcd, but etcd does not list it", o.Name)}
	}
	if !m.data {
		if err := hostfs.ApplyFile(h, op.File{Path: o.Service.Initial, Mode: 0o600, Content: m.initialCluster(o)}); err != nil {
			return err
		}
	}
	if err := systemd.ApplyUnit(ctx, h, o.Service.Unit); err != nil || !m.self.Learner {
		return err
	}
	return promoteLearner(ctx, h, o)
}

// addMember adds a learner. For some seconds after a new member etcd rejects another one,
// until it has had contact with all members for a while.
func addMember(ctx context.Context, h *host.Host, o op.EtcdMember) error {
	return awaitMember(ctx, h, o, learnTimes*h.EtcdTime, func(m membership) error {
		if m.self != nil {
			return nil
		}
		if _, err := runEtcdctl(ctx, h, o.EtcdClient, m.from, "member", "add", o.Name, "--learner", "--peer-urls="+o.PeerURL); err != nil {
			return fmt.Errorf("adding %s to etcd: %w", o.Name, err)
		}
		return nil
	})
}

// initialCluster returns the initial configuration of a member: the others, and whether
// they have already started without it.
func (m membership) initialCluster(o op.EtcdMember) []byte {
	state := "existing"
	if m.isExpected(o) {
		state = "new"
	}
	members := []string{o.Name + "=" + o.PeerURL}
	for _, other := range m.others {
		for _, url := range other.PeerURLs {
			members = append(members, cmp.Or(other.Name, fmt.Sprintf("%x", other.ID))+"="+url)
		}
	}
	slices.Sort(members)
	return fmt.Appendf(nil, "ETCD_INITIAL_CLUSTER=%s\nETCD_INITIAL_CLUSTER_STATE=%s\nETCD_INITIAL_CLUSTER_TOKEN=%s\n",
		strings.Join(members, ","), state, o.Service.Token)
}

// promoteLearner makes a learner a voting member, which etcd does when it has nearly all
// data of the others.
func promoteLearner(ctx context.Context, h *host.Host, o op.EtcdMember) error {
	return awaitMember(ctx, h, o, learnTimes*h.EtcdTime, func(m membership) error {
		if m.self == nil || m.isVoter() {
			return nil // the resulting state is checked afterwards
		}
		_, err := runEtcdctl(ctx, h, o.EtcdClient, m.from, "member", "promote", strconv.FormatUint(m.self.ID, 16))
		if err != nil {
			return &op.Error{
				Reason:  op.ReasonEtcdNoVote,
				Message: fmt.Sprintf("etcd does not make %s a voting member: %s", o.Name, host.FailureOf(err).Message),
			}
		}
		return nil
	})
}
