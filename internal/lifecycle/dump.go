package lifecycle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

const (
	// dumpTime bounds the collection.
	dumpTime = 3 * time.Minute
	// maxDumped is how much of one file is kept, of its end, in bytes.
	maxDumped = 1 << 20
	// maxPodLogs is how many logs of pods are taken from a host, the latest.
	maxPodLogs = 40
	// dumpedOperations is how many operations are told of.
	dumpedOperations = 20
)

// Dump writes a support bundle (tar, zstd) of a cluster: what is recorded, what
// its hosts and its API tell, without secrets. What cannot be had is named in
// it, and is no error. progress may be nil.
func (s *service) Dump(ctx context.Context, name string, w io.Writer, progress event.Sink) error {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return err
	}
	env, err := s.environment(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dumpTime)
	defer cancel()
	admin, _ := s.Store.Kubeconfig(name) // there may be none yet
	zw, err := zstd.NewWriter(w)
	if err != nil {
		return fmt.Errorf("making the support bundle: %w", err)
	}
	d := &dump{svc: s, dir: name, scrub: newScrubber(c, admin), tar: tar.NewWriter(zw), now: s.Now()}
	d.records(ctx, c, progress)
	l := &looker{svc: s, env: env, admin: admin}
	l.hosts = s.lookAt(ctx, c, progress, func(ctx context.Context, h *hostLook) { d.host(ctx, h) })
	for _, h := range l.hosts {
		if h.err != nil {
			d.miss("hosts/"+h.spec.Name, h.err)
		}
	}
	d.api(ctx, l)
	l.close()
	d.put("missing.txt", []byte(strings.Join(d.missing, "\n")+"\n"))
	err = errors.Join(d.err, d.tar.Close(), zw.Close())
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

type dump struct {
	svc   *service
	dir   string
	scrub *scrubber
	now   time.Time

	mu      sync.Mutex
	tar     *tar.Writer
	missing []string
	err     error
}

// miss says that something could not be had.
func (d *dump) miss(what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = append(d.missing, what+": "+string(d.scrub.text([]byte(err.Error()))))
}

// put adds a file, without secrets; of a big one, the end.
func (d *dump) put(name string, content []byte) {
	d.write(name, d.scrub.text(content))
}

func (d *dump) write(name string, content []byte) {
	if over := len(content) - maxDumped; over > 0 {
		content = append(fmt.Appendf(nil, "(the first %d bytes are left out)\n", over), content[over:]...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return
	}
	h := &tar.Header{Name: path.Join(d.dir, name), Mode: 0o600, Size: int64(len(content)), ModTime: d.now}
	if d.err = d.tar.WriteHeader(h); d.err == nil {
		_, d.err = d.tar.Write(content)
	}
}

// object adds a value as JSON.
func (d *dump) object(name string, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		d.miss(name, err)
		return
	}
	d.write(name, d.scrub.json(b, "  "))
}

// records are what this machine has written down.
func (d *dump) records(ctx context.Context, c *v1alpha1.Cluster, progress event.Sink) {
	text, err := json.Marshal(spec.Redacted(c))
	if err == nil {
		text, err = yaml.JSONToYAML(d.scrub.json(text, ""))
	}
	if err != nil {
		d.miss("cluster.yaml", err)
	}
	d.write("cluster.yaml", text)
	if info, err := d.svc.Info(ctx, c.Name, progress); err != nil {
		d.miss("info.json", err)
	} else {
		d.object("info.json", info)
	}
	ops, damaged, err := d.svc.Store.Readable(c.Name)
	if err != nil {
		d.miss("operations", err)
	}
	for _, x := range damaged {
		d.miss("operations", errors.New(x.Message))
	}
	for _, o := range ops[:min(len(ops), dumpedOperations)] {
		dir := "operations/" + o.Name + "/"
		d.object(dir+"operation.json", o)
		if p, err := d.svc.Store.Plan(o.Name); err != nil {
			d.miss(dir+"plan.json", err)
		} else {
			d.object(dir+"plan.json", p)
		}
		var journal bytes.Buffer
		if err := d.svc.Store.Read(o.Name, func(e event.Event) error {
			line, err := json.Marshal(e)
			journal.Write(d.scrub.json(line, ""))
			return err
		}); err != nil {
			d.miss(dir+"journal.jsonl", err)
		}
		d.write(dir+"journal.jsonl", journal.Bytes())
	}
}

// hostCommands are what is asked of a host: file → argv.
var hostCommands = []struct {
	file string
	argv []string
}{
	{"kubelet.log", []string{"journalctl", "-u", "kubelet", "-n", "3000", "--no-pager", "-o", "short-iso"}},
	{"containerd.log", []string{"journalctl", "-u", "containerd", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"etcd.log", []string{"journalctl", "-u", "etcd", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"slipway-units.log", []string{"journalctl", "-u", "slipway-*", "-n", "1000", "--no-pager", "-o", "short-iso"}},
	{"kernel.log", []string{"journalctl", "-k", "-n", "500", "--no-pager", "-o", "short-iso"}},
	{"units-failed.txt", []string{"systemctl", "list-units", "--failed", "--no-pager", "--plain"}},
	{"containers.txt", []string{"crictl", "--runtime-endpoint", "unix:///run/containerd/containerd.sock", "ps", "-a"}},
	{"disks.txt", []string{"df", "-h"}},
	{"memory.txt", []string{"free", "-m"}},
	{"processes.txt", []string{"ps", "-eo", "pid,ppid,user,stat,etime,rss,comm"}},
	{"addresses.txt", []string{"ip", "address"}},
	{"routes.txt", []string{"ip", "route"}},
	{"listeners.txt", []string{"ss", "-lntup"}},
}

// host asks one host; its errors are kept.
func (d *dump) host(ctx context.Context, h *hostLook) {
	dir := "hosts/" + h.spec.Name + "/"
	results, err := h.conn.Check(ctx, op.List{op.Facts{}})
	switch {
	case err != nil:
		d.miss(dir+"facts.json", err)
	case len(results) == 1 && results[0].Error == nil:
		d.write(dir+"facts.json", d.scrub.json(results[0].Output, "  "))
	}
	worker, ok := h.conn.(remote.Worker)
	if !ok {
		return
	}
	for _, c := range hostCommands {
		if out, err := output(ctx, worker, c.argv...); err != nil {
			d.miss(dir+c.file, err)
		} else {
			d.put(dir+c.file, out)
		}
	}
	// The newest first; only of the cluster's own pods.
	list, err := output(ctx, worker, "find", "/var/log/pods", "-path", "/var/log/pods/kube-*", "-name", "*.log", "-printf", "%T@ %p\n")
	if err != nil {
		d.miss(dir+"pods", err)
		return
	}
	for _, file := range newest(list) {
		if out, err := output(ctx, worker, "tail", "-c", strconv.Itoa(maxDumped/4), file); err != nil {
			d.miss(dir+file, err)
		} else {
			d.put(dir+"pods/"+strings.TrimPrefix(file, "/var/log/pods/"), out)
		}
	}
}

// newest are the files of a list of "time path" lines, the newest first.
func newest(list []byte) []string {
	type entry struct {
		at   float64
		path string
	}
	var all []entry
	for line := range strings.Lines(string(list)) {
		at, file, ok := strings.Cut(strings.TrimSpace(line), " ")
		if sec, err := strconv.ParseFloat(at, 64); err == nil && ok {
			all = append(all, entry{sec, file})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(b.at, a.at) })
	var out []string
	for _, e := range all[:min(len(all), maxPodLogs)] {
		out = append(out, e.path)
	}
	return out
}

// output is what a program prints on a host, the end of it.
func output(ctx context.Context, w remote.Worker, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var out, errw bytes.Buffer
	code, err := w.Run(ctx, remote.Command{Argv: argv}, nil, &tailBuffer{Buffer: &out}, &tailBuffer{Buffer: &errw})
	if err == nil && code != 0 && out.Len() == 0 {
		err = fmt.Errorf("%s ended with %d: %s", argv[0], code, strings.TrimSpace(errw.String()))
	}
	return out.Bytes(), err
}

// A tailBuffer keeps about the last maxDumped bytes.
type tailBuffer struct{ *bytes.Buffer }

func (t *tailBuffer) Write(p []byte) (int, error) {
	_, _ = t.Buffer.Write(p) // never fails
	if over := t.Len() - 2*maxDumped; over > 0 {
		t.Next(over + maxDumped)
	}
	return len(p), nil
}

// api asks the API for what its objects tell.
func (d *dump) api(ctx context.Context, l *looker) {
	if len(l.admin) == 0 {
		return
	}
	port := strconv.Itoa(l.env.Cluster.Spec.ControlPlaneEndpoint.Port)
	for _, h := range l.hosts {
		if h.err != nil || !spec.HasRole(h.spec, v1alpha1.RoleControlPlane) {
			continue
		}
		client, err := l.client(h, net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			d.miss("kubernetes", err)
			return
		}
		failed := false
		for file, at := range map[string]string{
			"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "events": "/api/v1/events", "services": "/api/v1/services",
			"daemonsets": "/apis/apps/v1/daemonsets", "deployments": "/apis/apps/v1/deployments", "leases": "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		} {
			ctx, cancel := context.WithTimeout(ctx, 2*apiTime)
			raw, err := client.Raw(ctx, at)
			cancel()
			if err != nil {
				d.miss("kubernetes/"+file+" through "+h.spec.Name, err)
				failed = true
				continue
			}
			list, ok := parsed(raw)
			if !ok {
				d.miss("kubernetes/"+file, errors.New("the API answers with what is no JSON"))
				continue
			}
			d.write("kubernetes/"+file+".json", asJSON(d.scrub.objects(list), " "))
		}
		client.Close()
		if !failed {
			return
		}
	}
}
