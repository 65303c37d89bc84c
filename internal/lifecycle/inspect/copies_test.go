package inspect

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup/copies"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
)

// A meeting is a host that responds when all hosts have a request.
type meeting struct {
	remote.Host
	asked *sync.WaitGroup
	file  string
}

func (m meeting) Check(ctx context.Context, _ op.List) ([]op.Result, error) {
	m.asked.Done()
	all := make(chan struct{})
	go func() {
		m.asked.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	raw, err := json.Marshal([]copies.File{{Name: m.file}})
	return []op.Result{{Output: raw}}, err
}

// A host that does not respond does not delay the others.
func TestListAll_QueriesAllHostsAtOnce(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(4)
	in := New(Config{})
	in.Limits.Host = 3 * time.Second
	q := &CopyQuery{Session: &Session{in: in}, name: "prod"}
	for _, host := range []string{"cp1", "cp2"} {
		file := copies.Name{Cluster: "prod", ID: "0123456789ab", Host: host, Revision: 1}.String()
		q.Session.Hosts = append(q.Session.Hosts, &Host{Spec: v1alpha1.Host{Name: host}, Conn: meeting{asked: &asked, file: file}})
	}
	for _, to := range q.listAll(t.Context(),
		[]v1alpha1.EtcdCopy{{Name: "nas", Directory: "/mnt/nas"}, {Name: "san", Directory: "/mnt/san"}}, nil) {
		if to.Problem != nil || len(to.Copies) != 2 || to.Copies[0].Host != "cp1" {
			t.Errorf("%s: %v, %+v", to.Name, to.Problem, to.Copies)
		}
	}
}

// A copy that cannot be verified, or a target that cannot be listed, is named in full.
func TestSetNext_NamesNewestVerifiedCopy(t *testing.T) {
	r := &CopyReport{Name: "prod", Targets: []CopyTarget{{
		Name: "nas", Copies: []CopyInfo{{File: "newer"}, {File: "older", Verified: true}}, Problem: &diag.Diagnostic{},
	}}}
	if r.setNext(); !strings.HasSuffix(r.Next, "--copy nas/older") {
		t.Errorf("next is %s", r.Next)
	}
}
