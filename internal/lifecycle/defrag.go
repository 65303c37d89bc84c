package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/pipeline"
)

// A defragmentation is the space that the defragmentation of an etcd freed.
type defragmentation struct {
	sync.Mutex
	lines []string
	bytes int64
}

// A DefragEtcdRequest asks to defragment the etcd databases of a saved cluster.
type DefragEtcdRequest struct {
	Name string
	Options
}

func (r DefragEtcdRequest) shared() sharedRequest {
	return sharedRequest{Subject: Subject{Name: r.Name}, Options: r.Options}
}

func (r DefragEtcdRequest) behaviour() behaviour { return defragEtcd() }

// defragEtcd defragments the databases of etcd.
func defragEtcd() behaviour {
	d := &defragmentation{}
	b := usual()
	b.wanted = savedOrFile
	b.begin = func(ctx context.Context, p *prepared) error { return mayMaintain(p.recorded, "a defragmentation") }
	b.pipeline = func(ctx context.Context, p *prepared, _ pipeline.Parts) (engine.Pipeline, error) {
		return pipeline.DefragEtcd(p.env, d.add), nil
	}
	b.summary = d.summary
	return b
}

// add records the space that the defragmentation of a host's member freed.
func (d *defragmentation) add(host string, before, after int64) {
	d.Lock()
	defer d.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s: %s, before %s", host, bytesize.Format(after), bytesize.Format(before)))
	d.bytes += before - after
}

func (d *defragmentation) summary(context.Context, *prepared, *Result) []string {
	d.Lock()
	defer d.Unlock()
	slices.Sort(d.lines)
	return append([]string{"the defragmentation freed " + bytesize.Format(max(d.bytes, 0))}, d.lines...)
}
