//go:build linux

package executor

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

	"slipway.dev/slipway/internal/node/op"
)

// etcdMemberOp executes op.EtcdMember.
type etcdMemberOp struct{ o op.EtcdMember }

func (x *etcdMemberOp) Paths() []string {
	if x.o.Service == nil {
		return (&execOp{o: x.o.Join}).Paths()
	}
	return append((&unitOp{o: x.o.Service.Unit}).Paths(), x.o.Service.Initial)
}

const (
	// etcdTime limits the wait for a change of the member list: until another member is
	// added, because etcd adds one at a time, or until this one votes.
	etcdTime  = 20 * time.Second
	etcdEvery = 500 * time.Millisecond
	// learnTimes is how much longer a new member can take to get the data of the others.
	learnTimes = 15
)

// etcdMember is an entry of the member list, as `etcdctl -w json` prints it.
type etcdMember struct {
	ID       uint64   `json:"ID"`
	Name     string   `json:"name"` // "" before its first start
	PeerURLs []string `json:"peerURLs"`
	// ClientURLs is empty before its first start.
	ClientURLs []string `json:"clientURLs,omitempty"`
	Learner    bool     `json:"isLearner"`
}

// called returns the name of a member, or its URL as long as it has none.
func (m etcdMember) called() string { return cmp.Or(m.Name, strings.Join(m.PeerURLs, ",")) }

// onlyFull reports whether etcdctl calls an etcd member unhealthy only because a database
// is full: it does so for every member, although each of them serves.
func onlyFull(err error) bool {
	var e *op.Error
	return errors.As(err, &e) && strings.Contains(e.Detail, "Active Alarm(s): NOSPACE") &&
		!strings.Contains(e.Detail, "CORRUPT") && !strings.Contains(e.Detail, "UNKNOWN")
}

// etcdctl queries one member, by argv.
func (s *session) etcdctl(ctx context.Context, o op.EtcdClient, endpoint string, args ...string) (string, error) {
	return s.output(ctx, slices.Concat(s.etcdctlArgs(o, endpoint), []string{"--command-timeout=8s"}, args)...)
}

// etcdctlArgs returns the command line, without a time limit.
func (s *session) etcdctlArgs(o op.EtcdClient, endpoint string) []string {
	return []string{
		o.Program, "--endpoints=" + endpoint, "--dial-timeout=3s",
		"--cacert=" + s.path(o.CA), "--cert=" + s.path(o.Cert), "--key=" + s.path(o.Key),
	}
}

// A membership is a host's membership in the cluster.
type membership struct {
	self   *etcdMember // nil: the cluster does not know the host
	others []etcdMember
	from   string // the endpoint that returned it
	// data reports whether the member's data are on the host.
	data bool
}

func (m membership) votes() bool {
	return m.data && m.self != nil && !m.self.Learner && m.self.Name != ""
}

// etcdMembers returns all members, and the endpoint that returned them: a member that is
// down, or is a learner and cannot answer, is skipped.
func (s *session) etcdMembers(ctx context.Context, o op.EtcdClient) (all []etcdMember, from string, err error) {
	err = errors.New("no other member can be queried")
	for _, endpoint := range o.Endpoints {
		var out string
		if out, err = s.etcdctl(ctx, o, endpoint, "member", "list", "-w", "json"); err != nil {
			continue
		}
		var list struct {
			Members []etcdMember `json:"members"`
		}
		if err = json.Unmarshal([]byte(out), &list); err == nil {
			return list.Members, endpoint, nil
		}
	}
	return nil, "", fmt.Errorf("listing etcd members: %w", err)
}

// membership queries the other members.
func (s *session) membership(ctx context.Context, o op.EtcdMember) (m membership, err error) {
	m.data = exists(s.path(filepath.Join(o.Data, "member")))
	all, from, err := s.etcdMembers(ctx, o.EtcdClient)
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
func (x *etcdMemberOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	if o.Service == nil {
		if err := checkExecName(o.Join); err != nil {
			return verdict{}, err
		}
	}
	if _, err := s.program(o.Program); err != nil {
		return verdict{change: "join"}, nil
	}
	for _, f := range []string{o.CA, o.Cert, o.Key} {
		if !exists(s.path(f)) {
			return verdict{change: "join"}, nil
		}
	}
	m, err := s.membership(ctx, o)
	switch {
	case ctx.Err() != nil:
		return verdict{}, err
	case err != nil: // possibly by the time it is applied
		return verdict{change: "check again: " + failure(err).Message}, nil
	case m.self == nil && m.data:
		return verdict{}, m.removed(o)
	case !m.votes():
		return verdict{change: "join"}, nil
	case o.Service != nil:
		return verdict{}, nil
	}
	o.Join.Conclusive = true
	return s.checkExec(ctx, o.Join)
}

func (x *etcdMemberOp) Apply(ctx context.Context, s *session, res *op.Result) error {
	o := x.o
	m, err := s.membership(ctx, o)
	if err != nil {
		return err
	}
	if m.votes() {
		if o.Service != nil {
			return nil
		}
		rec, _, err := s.execRecord(o.Join.Name)
		if err != nil {
			return err
		}
		// After a run that was interrupted, or failed in its last steps, the vote is the
		// wanted result.
		o.Join.Conclusive = !rec.Done
		return s.execute(ctx, o.Join, nil, res)
	}
	if err := m.removed(o); err != nil {
		return err
	}
	if err := s.clearMember(ctx, o, m); err != nil {
		return err
	}
	if err := s.aloneToLearn(ctx, o); err != nil {
		return err
	}
	if o.Service != nil {
		err = s.joinService(ctx, o)
	} else {
		err = s.execute(ctx, o.Join, nil, res)
	}
	if err != nil {
		return err
	}
	return s.awaitMember(ctx, o, s.etcdTime, func(m membership) error {
		if m.votes() {
			return nil
		}
		return &op.Error{Reason: op.ReasonEtcdNoVote, Message: fmt.Sprintf("%s was added to etcd, but is not a voting member", o.Name)}
	})
}

// removed rejects a host with data of a member that is not in the cluster: etcd would not
// accept it with these data, and a learner that does not start blocks others.
func (m membership) removed(o op.EtcdMember) error {
	if m.self != nil || !m.data {
		return nil
	}
	return &op.Error{Reason: op.ReasonEtcdRemoved,
		Message: fmt.Sprintf("%s has data, but etcd does not know the member %s: it was removed, or the data are from another cluster",
			o.Data, o.Name)}
}

// clearMember removes a learner that has started elsewhere, or here with data that are
// now missing: etcd knows its progress, and it could not start without the data. A voting
// member counts for the majority, so it is not removed on a guess.
func (s *session) clearMember(ctx context.Context, o op.EtcdMember, m membership) error {
	switch {
	case m.self == nil, m.data, m.self.Name == "", m.expected(o):
		return nil
	case !m.self.Learner:
		return &op.Error{
			Reason:  op.ReasonEtcdDataLost,
			Message: fmt.Sprintf("etcd needs the vote of %s (%s), but its data are not in %s", o.Name, o.PeerURL, o.Data),
		}
	}
	if _, err := s.etcdctl(ctx, o.EtcdClient, m.from, "member", "remove", strconv.FormatUint(m.self.ID, 16)); err != nil {
		return fmt.Errorf("removing the learner %s, whose data are lost, from etcd: %w", o.Name, err)
	}
	return nil
}

// aloneToLearn waits until no other member is being added.
func (s *session) aloneToLearn(ctx context.Context, o op.EtcdMember) error {
	return s.awaitMember(ctx, o, s.etcdTime, func(m membership) error {
		i := slices.IndexFunc(m.others, func(other etcdMember) bool { return other.Learner })
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
func (s *session) awaitMember(ctx context.Context, o op.EtcdMember, within time.Duration, want func(membership) error) error {
	deadline := time.Now().Add(within)
	for {
		m, err := s.membership(ctx, o)
		if err == nil {
			err = want(m)
		}
		if err == nil || !again(ctx, deadline) {
			return err
		}
	}
}

// again waits until the next query of etcd; it returns false when the time is over.
func again(ctx context.Context, deadline time.Time) bool {
	if time.Now().After(deadline) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(etcdEvery):
		return true
	}
}

// expected reports whether the others have known a member from the beginning, and it has
// never been one of them.
func (m membership) expected(o op.EtcdMember) bool {
	return o.Service != nil && m.self != nil && !m.self.Learner && len(m.self.ClientURLs) == 0
}

// joinService adds a member as a learner, starts it and promotes it. It continues with a
// member that was already added, wherever that was interrupted.
func (s *session) joinService(ctx context.Context, o op.EtcdMember) error {
	m, err := s.membership(ctx, o)
	if err == nil && m.self == nil {
		if err := s.addMember(ctx, o); err != nil {
			return err
		}
		m, err = s.membership(ctx, o)
	}
	switch {
	case err != nil:
		return err
	case m.self == nil:
		return &op.Error{Reason: op.ReasonEtcdNoVote, Message: fmt.Sprintf("%s was added to etcd, but etcd does not list it", o.Name)}
	}
	if !m.data {
		if err := s.applyFile(op.File{Path: o.Service.Initial, Mode: 0o600, Content: m.initial(o)}); err != nil {
			return err
		}
	}
	if err := s.applyUnit(ctx, o.Service.Unit); err != nil || !m.self.Learner {
		return err
	}
	return s.promote(ctx, o)
}

// addMember adds a learner. For some seconds after a new member etcd rejects another one,
// until it has had contact with all members for a while.
func (s *session) addMember(ctx context.Context, o op.EtcdMember) error {
	return s.awaitMember(ctx, o, learnTimes*s.etcdTime, func(m membership) error {
		if m.self != nil {
			return nil
		}
		if _, err := s.etcdctl(ctx, o.EtcdClient, m.from, "member", "add", o.Name, "--learner", "--peer-urls="+o.PeerURL); err != nil {
			return fmt.Errorf("adding %s to etcd: %w", o.Name, err)
		}
		return nil
	})
}

// initial returns the initial configuration of a member: the others, and whether they
// have already started without it.
func (m membership) initial(o op.EtcdMember) []byte {
	state := "existing"
	if m.expected(o) {
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

// promote makes a learner a voting member, which etcd does when it has nearly all data of
// the others.
func (s *session) promote(ctx context.Context, o op.EtcdMember) error {
	return s.awaitMember(ctx, o, learnTimes*s.etcdTime, func(m membership) error {
		if m.self == nil || m.votes() {
			return nil // the resulting state is checked afterwards
		}
		_, err := s.etcdctl(ctx, o.EtcdClient, m.from, "member", "promote", strconv.FormatUint(m.self.ID, 16))
		if err != nil {
			return &op.Error{Reason: op.ReasonEtcdNoVote,
				Message: fmt.Sprintf("etcd does not make %s a voting member: %s", o.Name, failure(err).Message)}
		}
		return nil
	})
}
