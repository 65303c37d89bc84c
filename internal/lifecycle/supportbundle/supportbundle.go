// Package supportbundle collects the saved state, logs and objects of a cluster in an archive
// without secrets.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

const (
	// maxLogBytes limits the size of one log, of which the end is kept, in bytes.
	// maxListBytes limits the size of a list of objects.
	maxLogBytes  = 1 << 20
	maxListBytes = 4 << 20
	// maxPodLogs limits the number of pod logs of a host; the latest are taken.
	maxPodLogs = 40
	// maxPodLogBytes limits the size of one pod log, of which the end is kept, in bytes.
	maxPodLogBytes = maxLogBytes / 4
	// maxOperations limits the number of operations.
	maxOperations = 20
)

// A Config configures a Collector.
type Config struct {
	Clusters  inspect.Clusters
	Records   records.Backend
	Inspector *inspect.Inspector
	// Secrets returns the secrets of a cluster that this machine can read, besides the
	// secrets of its SSH settings and registry logins.
	Secrets func(context.Context, *v1alpha1.Cluster) []string
	Now     func() time.Time
}

// A Collector collects support bundles.
type Collector struct {
	// TotalTime, HostTime and QueryTime limit all queries of hosts, the queries of one host,
	// and one query of a host. A host that misses the last limit maxStalls times is not
	// queried further.
	TotalTime, HostTime, QueryTime time.Duration
	c                              Config
}

// New returns a collector with the usual limits.
func New(c Config) *Collector {
	return &Collector{TotalTime: 3 * time.Minute, HostTime: 2 * time.Minute, QueryTime: 15 * time.Second, c: c}
}

// Dump writes a support bundle (tar, zstd) of a cluster: the saved state and data from
// its hosts and its API, without secrets. The bundle lists missing data, which is not an
// error. It returns warnings about hosts that could not be read completely, and about the
// API. progress may be nil.
func (c *Collector) Dump(ctx context.Context, name string, w io.Writer, progress event.Sink) (diag.List, error) {
	cluster, err := c.c.Clusters.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	env, err := c.c.Clusters.Environment(ctx, cluster)
	if err != nil {
		return nil, err
	}
	s := c.c.Inspector.NewSession(ctx, env)
	defer s.Close()
	zw, err := zstd.NewWriter(w)
	if err != nil {
		return nil, fmt.Errorf("creating the support bundle: %w", err)
	}
	d := &archive{
		collector: c, dir: name, redactor: newRedactor(cluster, s.Admin, c.c.Secrets(ctx, cluster)...), tar: tar.NewWriter(zw), now: c.c.Now(),
	}
	d.addRecords(ctx, cluster)
	d.addQueried(ctx, s, progress)
	d.addText("missing.txt", d.formatMissing())
	err = errors.Join(d.err, d.tar.Close(), zw.Close())
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the caller cancelled it
	}
	return d.warnings, err
}

// addQueried queries the hosts and the API at the same time.
func (d *archive) addQueried(ctx context.Context, s *inspect.Session, progress event.Sink) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.collector.TotalTime, inspect.ErrNoTime)
	defer cancel()
	var others sync.WaitGroup
	others.Go(func() { d.addAPI(ctx, s) })
	others.Go(func() { d.addInfo(ctx, s.Env.Cluster.Name) }) // a dead host delays it as well
	unread := make(map[string][]string, len(s.Hosts))
	var mu sync.Mutex
	s.QueryHosts(ctx, d.collector.HostTime, progress, func(ctx context.Context, h *inspect.Host) {
		r := d.newHostReader(h)
		h.Err = r.readAll(ctx)
		mu.Lock()
		defer mu.Unlock()
		unread[h.Spec.Name] = r.unread
	})
	others.Wait()
	for _, h := range s.Hosts {
		d.reportHost(h, unread[h.Spec.Name])
	}
}

// An archive is a support bundle that is being written.
type archive struct {
	collector *Collector
	dir       string
	redactor  *redactor
	now       time.Time

	mu      sync.Mutex
	tar     *tar.Writer
	missing []string
	names   map[string]bool // of the files in it
	err     error
	// warnings are about hosts and the API, of which data is missing.
	warnings diag.List
}

// addText adds a text without secrets. Of a large text it adds the end.
func (d *archive) addText(name string, content []byte) {
	content = d.redactor.redactText(content)
	if over := len(content) - maxLogBytes; over > 0 {
		content = append(fmt.Appendf(nil, "(first %d bytes omitted)\n", over), content[over:]...)
	}
	d.addFile(name, content)
}

// addLines adds JSON lines. If they are too many, it adds the last ones.
func (d *archive) addLines(name string, all [][]byte) {
	size, first := 0, len(all)
	for first > 0 && size+len(all[first-1]) <= maxListBytes {
		first--
		size += len(all[first])
	}
	if first > 0 {
		d.addMissing(name, fmt.Errorf("first %d of %d lines omitted", first, len(all)))
	}
	d.addFile(name, bytes.Join(all[first:], nil))
}

// addList adds a list of objects. If they are too many, the cluster's own namespaces come
// first.
func (d *archive) addList(name string, raw []byte) {
	v, ok := parseJSON(raw)
	list, isMap := v.(map[string]any)
	items, isList := list["items"].([]any)
	if !ok || !isMap || !isList {
		d.addMissing(name, errors.New("the API response is not a list"))
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
		item = d.redactor.redactObjects(item)
		if size += len(formatJSON(item, " ")); size > maxListBytes {
			d.addMissing(name, fmt.Errorf("%d of %d items omitted", len(items)-len(kept), len(items)))
			break
		}
		kept = append(kept, item)
	}
	list["items"] = kept
	d.addFile(name, formatJSON(list, " "))
}

// addFile adds a file. A name can be used once and must stay in the archive's directory.
func (d *archive) addFile(name string, content []byte) {
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

// addObject adds a value as JSON.
func (d *archive) addObject(name string, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		d.addMissing(name, err)
		return
	}
	d.addFile(name, d.redactor.redactJSON(b, "  "))
}

// addInfo adds the output of cluster-info.
func (d *archive) addInfo(ctx context.Context, cluster string) {
	info, err := d.collector.c.Inspector.Info(ctx, cluster, nil)
	if err != nil {
		d.addMissing("info.json", err)
		return
	}
	d.addObject("info.json", info)
}

// addRecords adds the saved state of this machine.
func (d *archive) addRecords(ctx context.Context, c *v1alpha1.Cluster) {
	text, err := json.Marshal(spec.RedactCluster(c))
	if err == nil {
		text, err = yaml.JSONToYAML(d.redactor.redactJSON(text, ""))
	}
	if err != nil {
		d.addMissing("cluster.yaml", err)
	}
	d.addFile("cluster.yaml", text)
	ops, damaged, err := d.collector.c.Records.Operations().ListReadable(ctx, c.Name)
	if err != nil {
		d.addMissing("operations", err)
	}
	for _, x := range damaged {
		d.addMissing("operations", errors.New(x.Message))
	}
	for _, o := range ops[:min(len(ops), maxOperations)] {
		dir := "operations/" + o.Name + "/"
		d.addObject(dir+"operation.json", o)
		if p, err := d.collector.c.Records.Operations().LoadPlan(ctx, o.Name); err != nil {
			d.addMissing(dir+"plan.json", err)
		} else {
			d.addObject(dir+"plan.json", p)
		}
		var journal [][]byte
		if err := d.collector.c.Records.Journals().ReadEvents(ctx, o.Name, func(e event.Event) error {
			line, err := json.Marshal(e)
			journal = append(journal, d.redactor.redactJSON(line, ""))
			return err
		}); err != nil {
			d.addMissing(dir+"journal.jsonl", err)
		}
		d.addLines(dir+"journal.jsonl", journal)
	}
}

// objectLists are the lists to read from the API: file → path.
func objectLists() map[string]string {
	return map[string]string{
		"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "events": "/api/v1/events", "services": "/api/v1/services",
		"daemonsets": "/apis/apps/v1/daemonsets", "deployments": "/apis/apps/v1/deployments",
		"leases": "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
	}
}

// addAPI adds lists of objects from the API. It queries the control planes as they are
// reached, and asks the next one for lists that are still missing.
func (d *archive) addAPI(ctx context.Context, s *inspect.Session) {
	if len(s.Admin) == 0 {
		return
	}
	left := objectLists()
	last := errors.New("no control plane is reachable")
	for h := range s.ControlPlanes {
		client, err := s.ControlPlaneClient(h)
		if err != nil {
			d.addMissing("kubernetes", err)
			return
		}
		for file, at := range left {
			raw, err := d.readList(ctx, client, at)
			if err != nil {
				last = fmt.Errorf("through %s: %w", h.Spec.Name, err)
			} else {
				delete(left, file)
				d.addList("kubernetes/"+file+".json", raw)
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
		d.addMissing("kubernetes/"+file, last)
	}
	d.warn("", "the support bundle lacks objects of the API ("+listNames(slices.Sorted(maps.Keys(left)))+"): "+d.plainReason(last),
		"check the API servers: slipway cluster-info "+s.Env.Cluster.Name)
}

// readList returns one list, within a time limit.
func (d *archive) readList(ctx context.Context, client *kube.Client, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d.collector.c.Inspector.Limits.Through)
	defer cancel()
	return client.GetRaw(ctx, at)
}
