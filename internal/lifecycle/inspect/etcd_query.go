package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// EtcdInfo is the cluster's etcd.
type EtcdInfo struct {
	Type      string       `json:"type"` // stacked, managed, external
	ClusterID string       `json:"clusterID,omitempty"`
	Revision  int64        `json:"revision,omitempty"`
	Members   []EtcdMember `json:"members"`
	// Through is the host that was used for the query. Message is the reason if the
	// query failed: then the members are from the saved state.
	Through string `json:"through,omitempty"`
	Message string `json:"message,omitempty"`
}

// EtcdMember is one member.
type EtcdMember struct {
	Name     string   `json:"name"`
	ID       string   `json:"id"` // hexadecimal, as etcdctl expects it; "" if etcd cannot be queried
	Endpoint string   `json:"endpoint"`
	PeerURLs []string `json:"peerURLs,omitempty"`
	Leader   bool     `json:"leader"`
	Learner  bool     `json:"learner"`
	// Answers reports whether the member responds; Healthy whether it also has a leader
	// and reports no errors or alarms.
	Answers bool   `json:"answers"`
	Healthy bool   `json:"healthy"`
	Version string `json:"version,omitempty"`
	// DBBytes is the size of its database, of which InUseBytes are in use: a
	// defragmentation frees the rest. When DBBytes reaches QuotaBytes, nothing can be
	// written. 0 means unknown.
	DBBytes    int64 `json:"dbBytes,omitempty"`
	InUseBytes int64 `json:"inUseBytes,omitempty"`
	QuotaBytes int64 `json:"quotaBytes,omitempty"`
	// RaftIndex is the last entry of its log, AppliedIndex the last entry in its
	// database, and Behind the distance of AppliedIndex to the most recent log.
	RaftTerm     uint64 `json:"raftTerm,omitempty"`
	RaftIndex    uint64 `json:"raftIndex,omitempty"`
	AppliedIndex uint64 `json:"appliedIndex,omitempty"`
	Behind       uint64 `json:"behind,omitempty"`
	// Alarms are the alarms of this member: NOSPACE, CORRUPT.
	Alarms []string `json:"alarms,omitempty"`
	// Errors are other errors that it reports, for example that it has no leader.
	Errors []string `json:"errors,omitempty"`

	leader uint64 // id of its leader
}

// HasLeader reports whether the member has a leader.
func (m EtcdMember) HasLeader() bool { return m.leader != 0 }

// Label returns the name of a member for users.
func (m EtcdMember) Label() string { return cmp.Or(m.Name, m.ID, m.Endpoint) }

// CanQueryEtcd reports whether etcd can be queried from a host: it has a member or, for
// external etcd, the API server's credentials.
func (s *Session) CanQueryEtcd(h v1alpha1.Host) bool {
	if s.Env.Cluster.Spec.Etcd.External != nil {
		return spec.HasRole(h, v1alpha1.RoleControlPlane)
	}
	return hostroles.RunsEtcd(s.Env.Cluster, h.Roles)
}

// etcdClient returns the client settings for such a host.
func (s *Session) etcdClient() op.EtcdClient {
	c := module.EtcdClient()
	c.Endpoints = []string{s.Env.LocalMemberURL()}
	if s.Env.Cluster.Spec.Etcd.External != nil {
		c.Cert, c.Key, c.Endpoints = module.EtcdClientCert, module.EtcdClientKey, s.Env.EtcdEndpoints()
	}
	return c
}

// queryEtcd queries the members from the first host that gets an answer. If there is none,
// it uses the members from the saved state.
func (s *Session) queryEtcd(ctx context.Context, in *EtcdInfo) {
	in.Message = "no host with access to etcd is reachable"
	client := s.etcdClient()
	for h := range s.members {
		worker, ok := h.Conn.(remote.Worker)
		if !ok {
			continue
		}
		limit := s.in.Limits.Through
		asked, cancel := context.WithTimeoutCause(ctx, limit, hostconn.Unresponsive(h.Spec.Name, limit))
		err := s.queryMembers(asked, worker, client, in)
		if err = hostconn.TimeoutCause(asked, err); err != nil {
			in.Message = h.Spec.Name + ": " + hostconn.Diagnose(err).Message
		}
		cancel()
		if err == nil {
			in.Through, in.Message = h.Spec.Name, ""
			return
		}
	}
	if len(in.Members) == 0 {
		in.Members = s.savedMembers()
	}
}

// queryMembers queries the members from one host. The credentials of an API server may
// not allow it to list members of an external etcd: then the endpoints are used instead.
func (s *Session) queryMembers(ctx context.Context, w remote.Worker, client op.EtcdClient, in *EtcdInfo) error {
	members, id, err := listMembers(ctx, w, client)
	if err != nil && s.Env.Cluster.Spec.Etcd.External != nil && ctx.Err() == nil {
		members = s.savedMembers()
	} else if err != nil {
		return err
	}
	revision := readMemberStates(ctx, w, client, members)
	if err != nil && !slices.ContainsFunc(members, func(m EtcdMember) bool { return m.Answers }) {
		return err
	}
	in.Members, in.ClusterID, in.Revision = members, id, revision
	return nil
}

// savedMembers returns the members from the cluster's description.
func (s *Session) savedMembers() (out []EtcdMember) {
	if s.Env.Cluster.Spec.Etcd.External != nil {
		for _, url := range s.Env.EtcdEndpoints() {
			out = append(out, EtcdMember{Endpoint: url})
		}
		return out
	}
	for _, h := range s.Env.EtcdMembers(s.Env.Cluster) {
		out = append(out, EtcdMember{
			Name: h.Name, Endpoint: module.EtcdURL(h, hostroles.EtcdClientPort), PeerURLs: []string{module.EtcdURL(h, hostroles.EtcdPeerPort)},
		})
	}
	return out
}

// etcdArgs returns the arguments of etcdctl for comma-separated endpoints.
func etcdArgs(c op.EtcdClient, endpoints string, args ...string) []string {
	return append([]string{
		c.Program, "--endpoints=" + endpoints, "--cacert=" + c.CA, "--cert=" + c.Cert, "--key=" + c.Key,
		"--dial-timeout=3s", "--command-timeout=5s", "--write-out=json",
	}, args...)
}

func runEtcdctl(ctx context.Context, w remote.Worker, c op.EtcdClient, into any, endpoints string, args ...string) error {
	var out, errw bytes.Buffer
	code, err := w.Run(ctx, remote.Command{Argv: etcdArgs(c, endpoints, args...)}, nil, &out, &errw)
	if err != nil {
		return err
	}
	if jerr := json.Unmarshal(out.Bytes(), into); jerr != nil || code != 0 && out.Len() == 0 {
		said := strings.TrimSpace(errw.String())
		if i := strings.LastIndexByte(said, '\n'); i >= 0 {
			said = said[i+1:]
		}
		return errors.New("etcdctl: " + cmp.Or(said, fmt.Sprintf("it exited with code %d", code)))
	}
	return nil
}

func formatID(id uint64) string { return strconv.FormatUint(id, 16) }

// listMembers returns the members and the id of their cluster.
func listMembers(ctx context.Context, w remote.Worker, c op.EtcdClient) (out []EtcdMember, cluster string, err error) {
	var list struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id"`
		} `json:"header"`
		Members []struct {
			ID        uint64   `json:"ID"`
			Name      string   `json:"name"`
			Peers     []string `json:"peerURLs"`
			Clients   []string `json:"clientURLs"`
			IsLearner bool     `json:"isLearner"`
		} `json:"members"`
	}
	endpoints := strings.Join(c.Endpoints, ",")
	// A serializable request works without a quorum.
	if err := runEtcdctl(ctx, w, c, &list, endpoints, "member", "list", "--consistency=s"); err != nil {
		if err := runEtcdctl(ctx, w, c, &list, endpoints, "member", "list"); err != nil {
			return nil, "", err
		}
	}
	if len(list.Members) == 0 {
		return nil, "", errors.New("etcdctl: the member list is empty")
	}
	for _, m := range list.Members {
		e := EtcdMember{Name: m.Name, ID: formatID(m.ID), Learner: m.IsLearner, PeerURLs: m.Peers}
		if len(m.Clients) > 0 {
			e.Endpoint = m.Clients[0]
		}
		out = append(out, e)
	}
	return out, formatID(list.Header.ClusterID), nil
}

// An etcdState is the status that a member reports.
type etcdState struct {
	Status struct {
		Header struct {
			MemberID uint64 `json:"member_id"`
			Revision int64  `json:"revision"`
		} `json:"header"`
		Version     string   `json:"version"`
		DBSize      int64    `json:"dbSize"`
		DBSizeInUse int64    `json:"dbSizeInUse"`
		DBSizeQuota int64    `json:"dbSizeQuota"`
		Leader      uint64   `json:"leader"`
		Term        uint64   `json:"raftTerm"`
		Index       uint64   `json:"raftIndex"`
		Applied     uint64   `json:"raftAppliedIndex"`
		Errors      []string `json:"errors"`
	} `json:"Status"`
}

// readMemberStates queries the status of every member separately, so that one that is down
// does not block the others. It returns the highest revision.
func readMemberStates(ctx context.Context, w remote.Worker, c op.EtcdClient, members []EtcdMember) (revision int64) {
	states := make([][]etcdState, len(members))
	at := make([]int, len(members))
	for i := range at {
		at[i] = i
	}
	hostconn.ForEach(at, func(i int) {
		if members[i].Endpoint != "" {
			_ = runEtcdctl(ctx, w, c, &states[i], members[i].Endpoint, "endpoint", "status") // an error means that the member does not respond
		}
	})
	var furthest uint64
	for i := range members {
		for _, st := range states[i] {
			m := &members[i]
			if id := formatID(st.Status.Header.MemberID); m.ID == "" || m.ID == id {
				m.ID = id
				m.setStatus(st)
				revision, furthest = max(revision, st.Status.Header.Revision), max(furthest, m.RaftIndex)
			}
		}
	}
	for i := range members {
		if m := &members[i]; m.Answers && furthest > m.AppliedIndex {
			m.Behind = furthest - m.AppliedIndex
		}
	}
	assignAlarms(members)
	return revision
}

// setStatus sets the reported status of a member.
func (m *EtcdMember) setStatus(st etcdState) {
	s := st.Status
	m.Answers, m.Version, m.DBBytes, m.InUseBytes, m.QuotaBytes = true, s.Version, s.DBSize, s.DBSizeInUse, s.DBSizeQuota
	m.RaftTerm, m.RaftIndex, m.AppliedIndex, m.Errors = s.Term, s.Index, s.Applied, s.Errors
	m.leader, m.Leader = s.Leader, s.Leader != 0 && s.Leader == s.Header.MemberID
}

// assignAlarms assigns alarms to their members: every member reports the alarms of all.
func assignAlarms(members []EtcdMember) {
	of := map[string][]string{}
	for i := range members {
		var rest []string
		for _, said := range members[i].Errors {
			var id uint64
			var alarm string
			if n, _ := fmt.Sscanf(said, "memberID:%d alarm:%s", &id, &alarm); n != 2 {
				rest = append(rest, strings.TrimSpace(said))
			} else if h := formatID(id); !slices.Contains(of[h], alarm) {
				of[h] = append(of[h], alarm)
			}
		}
		members[i].Errors = rest
	}
	for i := range members {
		m := &members[i]
		m.Alarms = of[m.ID]
		m.Healthy = m.Answers && m.leader != 0 && len(m.Errors)+len(m.Alarms) == 0
	}
}
