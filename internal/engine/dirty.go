package engine

import (
	"path"
	"slices"
	"strings"
	"sync"

	"slipway.dev/slipway/internal/node/op"
)

// dirty holds the files that earlier steps of a plan change, by host. A nil dirty is
// empty.
type dirty struct {
	mu    sync.Mutex
	paths map[string]map[string]bool
}

func newDirty() *dirty { return &dirty{paths: map[string]map[string]bool{}} }

// addChanged adds the files that an operation changes, according to its check.
func (d *dirty) addChanged(host string, o op.Op, res op.Result) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.paths[host]
	if m == nil {
		m = map[string]bool{}
		d.paths[host] = m
	}
	switch o := o.(type) {
	case op.File, op.Link, op.Absent, op.BaselineFile, op.KubeconfigCA:
		m[o.Target()] = true
	case op.Block:
		m[o.Path] = true
	case op.RenewCertificate:
		m[o.Path] = true
	case op.KeyPair:
		m[o.Private], m[o.Public] = true, true
	case op.Certificate:
		m[o.Cert], m[o.Key] = true, true
	case op.CertificateRequest:
		m[o.Key] = true
	case op.Exec:
		for _, p := range append(slices.Clone(o.Creates), o.Declares...) {
			m[p] = true
		}
	case op.Reset: // the name of a unit is not a path, so units and paths share one map
		for _, p := range append(slices.Clone(o.Units), o.Paths...) {
			m[p] = true
		}
	case op.Unpack:
		for _, name := range filesOf(o, res) {
			m[name] = true
		}
	}
}

// filesOf returns the files that an Unpack changes. If they are not known, it returns all
// files that it may change: a directory, with a "/" at the end, stands for its files.
func filesOf(o op.Unpack, res op.Result) (files []string) {
	if len(res.Output) > 0 {
		return strings.Split(string(res.Output), "\x00")
	}
	for _, name := range o.Members {
		files = append(files, path.Join(o.Dir, name))
	}
	if len(files) == 0 {
		files = []string{strings.TrimSuffix(o.Dir, "/") + "/"}
	}
	return files
}

// markChanged marks an unchanged operation as changed if an earlier step removes its object, or
// changes a file that it depends on.
func (d *dirty) markChanged(host string, o op.Op, res *op.Result) {
	if again := d.neededAgain(host, o); again != "" {
		res.Status, res.Summary = op.Changed, again
	} else if by := d.changedFileOf(host, o); by != "" {
		res.Status, res.Summary = op.Changed, by+" changes"
		if u, ok := o.(op.Unit); ok {
			res.Summary = "restart: " + res.Summary
			for _, path := range u.Forgets {
				res.Summary += ", remove " + path
			}
		}
	}
}

// neededAgain returns what must be done again because an earlier reset stops or removes the
// object; "" if nothing.
func (d *dirty) neededAgain(host string, o op.Op) string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch o := o.(type) {
	case op.Dir:
		if d.paths[host][o.Path] {
			return "create again"
		}
	case op.Unit:
		if d.paths[host][o.Name] && o.Running != nil && *o.Running {
			return "start again"
		}
	}
	return ""
}

// changedFileOf returns the first file that an operation depends on and that will change.
func (d *dirty) changedFileOf(host string, o op.Op) string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range op.DependsOn(o) {
		if d.paths[host][p] || d.paths[host][path.Dir(p)+"/"] {
			return p
		}
	}
	return ""
}
