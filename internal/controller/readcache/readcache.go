// Package readcache keeps Secrets and ConfigMaps in memory between reads. A watch of their metadata keeps their
// versions current, so an object that has not changed needs no request.
package readcache

import (
	"container/list"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// DefaultSize limits the contents of a cache, in bytes. About a thousand clusters fit.
	DefaultSize = 64 << 20
	// maxAge is the time after which an object is read again, also if the watch reports no change: the watch can
	// be interrupted.
	maxAge = 10 * time.Minute
)

// A Config configures a Cache. Versions, Live and Now are required.
type Config struct {
	// Versions reads the metadata of objects from a cache.
	Versions client.Reader
	// Live reads objects with requests.
	Live client.Reader
	Now  func() time.Time
	// Size limits the contents in memory, in bytes. Default: DefaultSize.
	Size int
}

// A Cache keeps the objects that were read last. Its methods and readers may be used from several goroutines.
type Cache struct {
	Config

	mu      sync.Mutex
	entries map[objectKey]*list.Element
	used    *list.List // of *entry; the one that was used last is the first
	size    int
}

// An objectKey identifies an object. A Secret and a ConfigMap can have the same name.
type objectKey struct {
	kind string
	types.NamespacedName
}

// An entry is an object that was read.
type entry struct {
	key     objectKey
	object  client.Object // nil if it does not exist
	missing error         // nil if it exists
	size    int
	read    time.Time
}

// has reports whether the entry has the version that the watch reports: nil means that the object does not exist.
func (e *entry) has(latest *metav1.PartialObjectMetadata) bool {
	if e.object == nil || latest == nil {
		return e.object == nil && latest == nil
	}
	return e.object.GetUID() == latest.UID && e.object.GetResourceVersion() == latest.ResourceVersion
}

// New returns an empty cache.
func New(c Config) *Cache {
	if c.Size == 0 {
		c.Size = DefaultSize
	}
	return &Cache{Config: c, entries: map[objectKey]*list.Element{}, used: list.New()}
}

// Reader returns a reader that sends no request for a Secret or ConfigMap whose version has not changed. If fresh is
// true, it sends a request for each read, and the other readers use the results.
func (c *Cache) Reader(fresh bool) client.Reader { return &reader{c.Live, c, fresh} }

// ReadSecret returns a function that reads a Secret as Reader does.
func (c *Cache) ReadSecret(fresh bool) func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	from := c.Reader(fresh)
	return func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
		out := new(corev1.Secret)
		if err := from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, out); err != nil {
			return nil, err
		}
		return out, nil
	}
}

// A reader reads through a cache. It lists with requests.
type reader struct {
	client.Reader
	cache *Cache
	fresh bool
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, name client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	key := objectKey{NamespacedName: name}
	switch out.(type) {
	case *corev1.Secret:
		key.kind = "Secret"
	case *corev1.ConfigMap:
		key.kind = "ConfigMap"
	}
	if key.kind == "" || len(opts) > 0 {
		return r.Reader.Get(ctx, name, out, opts...)
	}
	if !r.fresh {
		if is := r.cache.find(ctx, key); is != nil {
			if is.object != nil {
				copyObject(is.object, out)
			}
			return is.missing
		}
	}
	err := r.Reader.Get(ctx, name, out)
	switch {
	case err == nil:
		is := out.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the same type
		r.cache.add(&entry{key: key, object: is, size: sizeOf(out)})
	case apierrors.IsNotFound(err):
		r.cache.add(&entry{key: key, missing: err, size: metadataSize})
	default:
		r.cache.remove(key)
	}
	return err
}

// find returns an entry, nil unless it is the latest that the watch knows.
func (c *Cache) find(ctx context.Context, key objectKey) *entry {
	latest := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: key.kind}}
	if err := c.Versions.Get(ctx, key.NamespacedName, latest); apierrors.IsNotFound(err) {
		latest = nil
	} else if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.entries[key]
	if at == nil {
		return nil
	}
	is := entryOf(at)
	if !is.has(latest) || c.Now().Sub(is.read) >= maxAge {
		return nil
	}
	c.used.MoveToFront(at)
	return is
}

// add adds an entry, and removes the entries that were not used for the longest time if there is no room.
func (c *Cache) add(is *entry) {
	is.read = c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(is.key)
	if is.size > c.Size {
		return
	}
	c.entries[is.key] = c.used.PushFront(is)
	for c.size += is.size; c.size > c.Size; {
		c.removeLocked(entryOf(c.used.Back()).key)
	}
}

// remove removes an object that cannot be read.
func (c *Cache) remove(key objectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(key)
}

// removeLocked is remove for a caller that holds mu.
func (c *Cache) removeLocked(key objectKey) {
	if at := c.entries[key]; at != nil {
		c.size -= entryOf(at).size
		c.used.Remove(at)
		delete(c.entries, key)
	}
}

func entryOf(at *list.Element) *entry { return at.Value.(*entry) } //nolint:forcetypeassert // the list has only entries

// metadataSize is about the memory of an object without its data, in bytes.
const metadataSize = 2 << 10

// sizeOf returns about the memory of a Secret or ConfigMap, in bytes.
func sizeOf(o client.Object) int {
	size := metadataSize
	switch o := o.(type) {
	case *corev1.Secret:
		for key, value := range o.Data {
			size += len(key) + len(value)
		}
	case *corev1.ConfigMap:
		for key, value := range o.Data {
			size += len(key) + len(value)
		}
		for key, value := range o.BinaryData {
			size += len(key) + len(value)
		}
	}
	return size
}

// copyObject copies a Secret or ConfigMap. Both have the same type.
func copyObject(from, to client.Object) {
	switch to := to.(type) {
	case *corev1.Secret:
		from.(*corev1.Secret).DeepCopyInto(to) //nolint:forcetypeassert // as the key says
	case *corev1.ConfigMap:
		from.(*corev1.ConfigMap).DeepCopyInto(to) //nolint:forcetypeassert // as the key says
	}
}
