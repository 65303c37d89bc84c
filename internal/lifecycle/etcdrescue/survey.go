package etcdrescue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// A Rescue is a rescue of etcd: the member whose data is used, and the alternatives.
// A nil *Rescue means that there is no rescue; Mark and Losses can be called.
type Rescue struct {
	// Source is the data for the hosts.
	Source etcdbackup.Source
	// left lists the remaining members that have data, best one first.
	left []survivor
	is   op.EtcdRecovered // the salvaged data, once it is known
}

// Survey reads from hosts the extent of the remaining members' data and chooses the member
// whose data the rescue uses: the one given with --from, otherwise the one with the most
// recent data. A resumed rescue keeps its first choice: mark is its Mark.
func (r Request) Survey(ctx context.Context, hosts []*engine.Host, mark string) (*Rescue, error) {
	out := &Rescue{}
	for _, h := range hosts {
		if !hostroles.RunsEtcd(r.Env.Cluster, h.Roles) {
			continue
		}
		is, err := logOf(ctx, h)
		if err != nil {
			return nil, err
		}
		if is != (op.EtcdRecovered{}) {
			out.left = append(out.left, survivor{h.Name, is})
		}
	}
	bestFirst(out.left)
	by := &etcdbackup.Rescue{Salvaged: func(is op.EtcdRecovered) { out.is = is }}
	if mark != "" {
		if _, err := fmt.Sscanf(mark, "%d %d %s", &by.Term, &by.Index, &by.Member); err != nil {
			return nil, fmt.Errorf("reading whose data this rescue uses: %w", err)
		}
		by.Database = len(strings.Fields(mark)) > 3
	} else {
		best, err := r.chooseMember(out.left)
		if err != nil {
			return nil, err
		}
		by.Member, by.EtcdReach, by.Database = best.host, best.Reach(), best.ByDatabase()
	}
	out.Source.Rescue = by
	sum := sha256.Sum256([]byte(out.Mark() + " " + strings.Join(r.Lost, " ")))
	out.Source.Key = hex.EncodeToString(sum[:8])
	return out, nil
}

// chooseMember returns the member whose data the rescue uses. left lists the remaining
// members, best one first.
func (r Request) chooseMember(left []survivor) (s survivor, err error) {
	readable := slices.DeleteFunc(slices.Clone(left), func(s survivor) bool { return s.Reach().Index == 0 })
	from := r.From
	i := slices.IndexFunc(readable, func(s survivor) bool { return from == "" || s.host == from })
	switch {
	case i >= 0:
		return readable[i], oneCluster(readable, from)
	case len(readable) > 0:
		why := "it has no data"
		if i := slices.IndexFunc(left, func(s survivor) bool { return s.host == from }); i >= 0 {
			why = left[i].describeState()
		}
		return s, diag.Refuse(idRescueFrom, from+" has no usable etcd data: "+why,
			"use another host, or omit --from to use the most recent data, on "+readable[0].host)
	}
	what := "no remaining etcd member has usable data"
	for _, s := range left {
		what += "; " + s.host + ": " + s.describeState()
	}
	return s, diag.Refuse(idRescueNoData, what, "restore a backup: slipway etcd restore "+r.Env.Cluster.Name+" --from FILE")
}

// logOf returns the extent of the etcd data on a host.
func logOf(ctx context.Context, h *engine.Host) (is op.EtcdRecovered, err error) {
	results, err := h.Conn.Check(ctx, op.List{op.EtcdRecover{Data: facts.DirEtcd}})
	if err == nil && results[0].Error != nil {
		err = results[0].Error
	}
	if err == nil {
		err = json.Unmarshal(results[0].Output, &is)
	}
	if err != nil {
		return is, fmt.Errorf("reading the etcd log on %s: %w", h.Name, err)
	}
	return is, nil
}

// Mark encodes, for a resumed operation, whose data a rescue uses, and whether it uses
// only the database.
func (r *Rescue) Mark() string {
	if r == nil {
		return ""
	}
	by := r.Source.Rescue
	mark := fmt.Sprintf("%d %d %s", by.Term, by.Index, by.Member)
	if by.Database {
		mark += " database"
	}
	return mark
}

// Losses describes, for users, the data that a rescue may lose.
func (r *Rescue) Losses(env module.Env, lost []string) []string {
	if r == nil {
		return nil
	}
	by := r.Source.Rescue
	text := "entries that the lost members acknowledged and " + by.Member + " never received: "
	known := "its data ended at " + formatReach(by.EtcdReach) + " when the rescue began"
	out := []string{"the etcd members on " + strings.Join(lost, ", ") + ": their data must never be used again"}
	for _, s := range r.left {
		switch {
		case s.host != by.Member:
			out = append(out, fmt.Sprintf("the etcd member on %s (%s): its data is moved aside, and it no longer starts", s.host, s.describeState()))
		case s.Reach() == by.EtcdReach:
			known = s.describeState() + s.describeLoss()
		}
	}
	text += known + "; the current data is moved aside and kept on the hosts of cluster " + env.Cluster.Name
	return slices.Concat([]string{text}, r.compareMembers(), out)
}

// Running describes the rescued data.
func (r *Rescue) Running() string {
	by := r.Source.Rescue
	line := "etcd is running with one member, on " + by.Member
	if is := r.is; is.Snapshot != nil {
		all := "all entries of its log"
		switch {
		case by.Database:
			all = "all entries of its database"
		case is.From != "":
			all = "all entries of its database and of the log after it"
		case is.Damaged != "":
			all = "all readable entries of its log"
		}
		line += fmt.Sprintf(", with %s: revision %d, %d keys", all, is.Snapshot.Revision, is.Snapshot.Keys)
	}
	return line
}

// NextSteps describes how the cluster gets its full size again. lost are the hosts that were declared lost.
func (r *Rescue) NextSteps(env module.Env, lost []string) (out []string) {
	var gone, others []string
	for _, h := range env.Cluster.Spec.Hosts {
		if slices.Contains(lost, h.Name) {
			gone = append(gone, h.Name)
		}
	}
	for _, h := range env.EtcdMembers(env.Cluster) {
		if h.Name != r.Source.Rescue.Member && !slices.Contains(lost, h.Name) {
			others = append(others, h.Name)
		}
	}
	name := env.Cluster.Name
	add := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("%d. ", len(out)+1)+fmt.Sprintf(format, args...))
	}
	add("wait about a minute until the nodes of the lost hosts are not ready, then remove these hosts: "+
		"slipway delete nodes %s --cluster %s --forget", strings.Join(gone, " "), name)
	if len(others) > 0 {
		add("remove the hosts whose etcd members no longer run: slipway delete nodes %s --cluster %s", strings.Join(others, " "), name)
	}
	add("add hosts until the cluster has its full size: slipway add nodes %s --host USER@ADDRESS=ROLE,name=NAME", name)
	return out
}
