package addon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/kube"
)

// Where the cluster has on record what add-ons have put into it.
const (
	namespace = "kube-system"
	prefix    = "slipway-addon-"
	// mark is on inventories and on what is kept beside them, and on nothing else.
	mark = "slipway.dev/addon-inventory"
)

// A state is how far an add-on has come.
type state string

const (
	// applying: it was begun, and has not come to its end.
	applying state = "applying"
	applied  state = "applied"
	// removing: it is taken out, and its hooks before that have not come to their
	// end; deleting: they have.
	removing state = "removing"
	deleting state = "deleting"
)

// An inventory is what an add-on has put into the cluster.
type inventory struct {
	Name   string
	State  state
	Digest string
	// Installed says that it has come to its end once.
	Installed bool
	Objects   []entry
	Sources   []string
}

// An entry is one object.
type entry struct {
	addon.Ref
	Version string `json:"version"`
	// Found says that it was there before the add-on: it stays when the add-on
	// goes.
	Found bool `json:"found,omitempty"`
}

func (e entry) object() *unstructured.Unstructured { return e.Ref.Object(e.Version) }

// inventoryOf reads what is on record of an add-on, nil if there is nothing.
func inventoryOf(ctx context.Context, c *kube.Client, name string) (*inventory, error) {
	cm, err := c.ConfigMap(ctx, namespace, prefix+name)
	if cm == nil || err != nil {
		return nil, err
	}
	return parse(cm)
}

// inventories are those of all add-ons, the latest first.
func inventories(ctx context.Context, c *kube.Client) ([]*inventory, error) {
	maps, err := c.ConfigMaps(ctx, namespace, mark)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(maps, func(a, b corev1.ConfigMap) int {
		if d := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); d != 0 {
			return d
		}
		return strings.Compare(b.Name, a.Name)
	})
	var out []*inventory
	for i := range maps {
		inv, err := parse(&maps[i])
		if err != nil {
			return nil, err
		}
		out = append(out, inv)
	}
	return out, nil
}

func parse(cm *corev1.ConfigMap) (*inventory, error) {
	inv := &inventory{
		Name: cm.Labels[mark], State: state(cm.Data["state"]), Digest: cm.Data["digest"],
		Installed: cm.Data["installed"] == "true",
	}
	if text := cm.Data["sources"]; text != "" {
		inv.Sources = strings.Split(text, "\n")
	}
	if err := json.Unmarshal([]byte(cm.Data["objects"]), &inv.Objects); err != nil {
		return nil, fmt.Errorf("reading what is on record of an add-on in config map %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	return inv, nil
}

// object is the inventory as the cluster keeps it.
func (inv *inventory) object() (*unstructured.Unstructured, error) {
	objects, err := json.Marshal(inv.Objects)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": prefix + inv.Name, "namespace": namespace, "labels": map[string]any{mark: inv.Name},
		},
		"data": map[string]any{
			"state": string(inv.State), "digest": inv.Digest, "installed": fmt.Sprint(inv.Installed),
			"objects": string(objects), "sources": strings.Join(inv.Sources, "\n"),
		},
	}}, nil
}

// write puts it on record.
func (inv *inventory) write(ctx context.Context, c *kube.Client) error {
	o, err := inv.object()
	if err != nil {
		return err
	}
	return c.Apply(ctx, []*unstructured.Unstructured{o})
}

// same says that two inventories are of the same objects, from the same.
func (inv *inventory) same(other *inventory) bool {
	return inv.Digest == other.Digest && inv.State == other.State &&
		slices.Equal(inv.Objects, other.Objects) && slices.Equal(inv.Sources, other.Sources)
}

// entry finds an object.
func (inv *inventory) entry(ref addon.Ref) (entry, bool) {
	if inv == nil {
		return entry{}, false
	}
	i := slices.IndexFunc(inv.Objects, func(e entry) bool { return e.Ref == ref })
	if i < 0 {
		return entry{}, false
	}
	return inv.Objects[i], true
}

// without are the entries that are not among others.
func (inv *inventory) without(others []entry) (out []entry) {
	if inv == nil {
		return nil
	}
	for _, e := range inv.Objects {
		if !slices.ContainsFunc(others, func(o entry) bool { return o.Ref == e.Ref }) {
			out = append(out, e)
		}
	}
	return out
}
