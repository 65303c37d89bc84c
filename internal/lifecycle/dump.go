package lifecycle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

const (
	// maxDumped limits the size of one log, of which the end is kept, in bytes.
	// maxListed limits the size of a list of objects.
	maxDumped = 1 << 20
	maxListed = 4 << 20
	// maxPodLogs limits the number of pod logs of a host; the latest are taken.
	maxPodLogs = 40
	// maxPodLog limits the size of one pod log, of which the end is kept, in bytes.
	maxPodLog = maxDumped / 4
	// dumpedOperations limits the number of operations.
	dumpedOperations = 20
)

// Dump writes a support bundle (tar, zstd) of a cluster: the saved state and data from
// its hosts and its API, without secrets. The bundle lists missing data, which is not an
// error. progress may be nil.
func (s *service) Dump(ctx context.Context, name string, w io.Writer, progress event.Sink) error {
	c, err := s.Cluster(ctx, name)
	if err != nil {
		return err
	}
	env, err := s.environment(ctx, c)
	if err != nil {
		return err
	}
	l := newLooker(s, env)
	defer l.close()
	zw, err := zstd.NewWriter(w)
	if err != nil {
		return fmt.Errorf("creating the support bundle: %w", err)
	}
	d := &dump{svc: s, dir: name, scrub: newScrubber(c, l.admin, s.registrySecrets(c)...), tar: tar.NewWriter(zw), now: s.Now()}
	d.records(ctx, c, progress)
	d.ask(ctx, l, progress)
	slices.Sort(d.missing)
	d.put("missing.txt", []byte(strings.Join(d.missing, "\n")+"\n"))
	err = errors.Join(d.err, d.tar.Close(), zw.Close())
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the caller cancelled it
	}
	return err
}

// ask queries the hosts and the API at the same time.
func (d *dump) ask(ctx context.Context, l *looker, progress event.Sink) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.svc.looks.dump, errNoTime)
	defer cancel()
	var api sync.WaitGroup
	api.Go(func() { d.api(ctx, l) })
	l.lookAt(ctx, d.svc.looks.dumpHost, progress, func(ctx context.Context, h *hostLook) { h.err = d.host(ctx, h) })
	api.Wait()
	for _, h := range l.hosts {
		if h.err != nil {
			d.miss("hosts/"+h.spec.Name, h.err)
		}
	}
}

type dump struct {
	svc   *service
	dir   string
	scrub *scrubber
	now   time.Time

	mu      sync.Mutex
	tar     *tar.Writer
	missing []string
	names   map[string]bool // of the files in it
	err     error
}

// miss notes that data is missing.
func (d *dump) miss(what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = append(d.missing, what+": "+string(d.scrub.text([]byte(err.Error()))))
}

// put adds a text without secrets. Of a large text it adds the end.
func (d *dump) put(name string, content []byte) {
	content = d.scrub.text(content)
	if over := len(content) - maxDumped; over > 0 {
		content = append(fmt.Appendf(nil, "(first %d bytes omitted)\n", over), content[over:]...)
	}
	d.write(name, content)
}

// lines adds JSON lines. If they are too many, it adds the last ones.
func (d *dump) lines(name string, all [][]byte) {
	size, first := 0, len(all)
	for first > 0 && size+len(all[first-1]) <= maxListed {
		first--
		size += len(all[first])
	}
	if first > 0 {
		d.miss(name, fmt.Errorf("first %d of %d lines omitted", first, len(all)))
	}
	d.write(name, bytes.Join(all[first:], nil))
}

// list adds a list of objects. If they are too many, the cluster's own namespaces come
// first.
func (d *dump) list(name string, raw []byte) {
	v, ok := parsed(raw)
	list, isMap := v.(map[string]any)
	items, isList := list["items"].([]any)
	if !ok || !isMap || !isList {
		d.miss(name, errors.New("the API response is not a list"))
		return
	}
	own := func(v any) int {
		o, _ := v.(map[string]any)
		meta, _ := o["metadata"].(map[string]any)
		if space, _ := meta["namespace"].(string); space == "" || strings.HasPrefix(space, "kube-") {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(items, func(a, b any) int { return own(a) - own(b) })
	kept, size := []any{}, 0
	for _, item := range items {
		item = d.scrub.objects(item)
		if size += len(asJSON(item, " ")); size > maxListed {
			d.miss(name, fmt.Errorf("%d of %d items omitted", len(items)-len(kept), len(items)))
			break
		}
		kept = append(kept, item)
	}
	list["items"] = kept
	d.write(name, asJSON(list, " "))
}

// write adds a file. A name can be used once and must stay in the archive's directory.
func (d *dump) write(name string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return
	}
	if !filepath.IsLocal(name) || d.names[path.Clean(name)] {
		d.missing = append(d.missing, strconv.Quote(name)+": the name is not allowed or is already used")
		return
	}
	if d.names == nil {
		d.names = map[string]bool{}
	}
	d.names[path.Clean(name)] = true
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

// records adds the saved state of this machine.
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
		var journal [][]byte
		if err := d.svc.Store.Read(o.Name, func(e event.Event) error {
			line, err := json.Marshal(e)
			journal = append(journal, d.scrub.json(line, ""))
			return err
		}); err != nil {
			d.miss(dir+"journal.jsonl", err)
		}
		d.lines(dir+"journal.jsonl", journal)
	}
}

// hostCommands are the commands to run on a host: file → argv.
var hostCommands = []struct {
	file string
	argv []string
}{
	{"kubelet.log", []string{"journalctl", "-u", "kubelet", "-n", "3000", "--no-pager", "-o", "short-iso"}},
	{"containerd.log", []string{"journalctl", "-u", "containerd", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"docker.log", []string{"journalctl", "-u", "docker", "-u", "cri-docker", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"etcd.log", []string{"journalctl", "-u", "etcd", "-n", "2000", "--no-pager", "-o", "short-iso"}},
	{"slipway-units.log", []string{"journalctl", "-u", "slipway-*", "-n", "1000", "--no-pager", "-o", "short-iso"}},
	{"kernel.log", []string{"journalctl", "-k", "-n", "500", "--no-pager", "-o", "short-iso"}},
	{"units-failed.txt", []string{"systemctl", "list-units", "--failed", "--no-pager", "--plain"}},
	{"containers.txt", []string{"crictl", "ps", "-a"}}, // it finds the socket in its own configuration
	{"disks.txt", []string{"df", "-h"}},
	{"memory.txt", []string{"free", "-m"}},
	{"processes.txt", []string{"ps", "-eo", "pid,ppid,user,stat,etime,rss,comm"}},
	{"addresses.txt", []string{"ip", "address"}},
	{"routes.txt", []string{"ip", "route"}},
	{"listeners.txt", []string{"ss", "-lntup"}},
}

// host collects the data of one host and keeps errors. It returns the reason if it was
// interrupted.
func (d *dump) host(ctx context.Context, h *hostLook) error {
	dir := "hosts/" + h.spec.Name + "/"
	results, err := h.conn.Check(ctx, op.List{op.Facts{}})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		d.miss(dir+"facts.json", err)
	case len(results) == 1 && results[0].Error == nil:
		d.write(dir+"facts.json", d.scrub.json(results[0].Output, "  "))
	}
	worker, ok := h.conn.(remote.Worker)
	if !ok {
		return nil
	}
	for _, c := range hostCommands {
		out, err := output(ctx, worker, c.argv...)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			d.miss(dir+c.file, err)
		default:
			d.put(dir+c.file, out)
		}
	}
	return d.podLogs(ctx, dir, h.conn)
}

// podLogs adds the logs of the cluster's own pods, newest first.
func (d *dump) podLogs(ctx context.Context, dir string, host remote.Host) error {
	list, err := answer(ctx, host, op.PodLogs{Most: maxPodLogs})
	var names []string
	if err == nil {
		err = json.Unmarshal(list, &names)
	}
	if err != nil {
		d.miss(dir+"pods", err)
		return ctx.Err()
	}
	for _, name := range names[:min(len(names), maxPodLogs)] {
		if !op.IsPodLog(name) {
			continue // the kubelet does not create such a name
		}
		out, err := answer(ctx, host, op.PodLog{Name: name, Bytes: maxPodLog})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			d.miss(dir+"pods/"+name, err)
		default:
			if len(out) >= maxPodLog {
				out = wholeLines(out)
			}
			d.put(dir+"pods/"+name, out)
		}
	}
	return nil
}

// answer returns the output of a read-only operation on a host.
func answer(ctx context.Context, host remote.Host, o op.Op) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	results, err := host.Check(ctx, op.List{o})
	switch {
	case err != nil:
		return nil, err
	case len(results) != 1:
		return nil, fmt.Errorf("the node helper returned %d results for one operation", len(results))
	case results[0].Error != nil:
		return nil, results[0].Error
	}
	return results[0].Output, nil
}

// wholeLines returns the text after its first line, whose beginning is missing: a secret
// in it could not be recognized.
func wholeLines(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest
}

// output returns the end of a program's output on a host.
func output(ctx context.Context, w remote.Worker, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var out, errw bytes.Buffer
	kept := &tailBuffer{Buffer: &out}
	code, err := w.Run(ctx, remote.Command{Argv: argv}, nil, kept, &tailBuffer{Buffer: &errw})
	if err == nil && code != 0 && out.Len() == 0 {
		err = fmt.Errorf("%s exited with code %d: %s", argv[0], code, strings.TrimSpace(errw.String()))
	}
	if kept.cut {
		return wholeLines(out.Bytes()), err
	}
	return out.Bytes(), err
}

// A tailBuffer keeps about the last maxDumped bytes.
type tailBuffer struct {
	*bytes.Buffer
	cut bool // earlier output was dropped
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	_, _ = t.Buffer.Write(p) // never fails
	if over := t.Len() - 2*maxDumped; over > 0 {
		t.Next(over + maxDumped)
		t.cut = true
	}
	return len(p), nil
}

// objectLists are the lists to read from the API: file → path.
func objectLists() map[string]string {
	return map[string]string{
		"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "events": "/api/v1/events", "services": "/api/v1/services",
		"daemonsets": "/apis/apps/v1/daemonsets", "deployments": "/apis/apps/v1/deployments",
		"leases": "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
	}
}

// api adds lists of objects from the API. It queries the control planes as they are
// reached, and asks the next one for lists that are still missing.
func (d *dump) api(ctx context.Context, l *looker) {
	if len(l.admin) == 0 {
		return
	}
	left := objectLists()
	last := errors.New("no control plane is reachable")
	for h := range l.controlPlanes {
		client, err := l.own(h)
		if err != nil {
			d.miss("kubernetes", err)
			return
		}
		for file, at := range left {
			raw, err := d.raw(ctx, client, at)
			if err != nil {
				last = fmt.Errorf("through %s: %w", h.spec.Name, err)
			} else {
				delete(left, file)
				d.list("kubernetes/"+file+".json", raw)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				break // every list would time out
			}
		}
		client.Close()
		if len(left) == 0 {
			return
		}
	}
	for file := range left {
		d.miss("kubernetes/"+file, last)
	}
}

// raw returns one list, within a time limit.
func (d *dump) raw(ctx context.Context, client *kube.Client, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d.svc.looks.over)
	defer cancel()
	return client.Raw(ctx, at)
}
