package addon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/kube"
)

// The ConfigMaps with the inventories of add-ons.
const (
	namespace = "kube-system"
	prefix    = "slipway-addon-"
	// mark is a label of inventories and of their Secrets, and of nothing else.
	mark = "slipway.dev/addon-inventory"
)

// A state is the progress of an add-on.
type state string

const (
	// applying: the installation has begun, and is not complete.
	applying state = "applying"
	applied  state = "applied"
	// removing: the removal has begun, and its pre-delete hooks are not complete.
	// deleting: they are complete.
	removing state = "removing"
	deleting state = "deleting"
)

// An inventory lists what an add-on has put into the cluster.
type inventory struct {
	Name   string
	State  state
	Digest string
	// Installed reports whether the installation has completed once.
	Installed bool
	Objects   []entry
	Sources   []string
}

// An entry is one object.
type entry struct {
	addonsource.Ref
	Version string `json:"version"`
	// Found reports whether the object existed before the add-on: it remains when the
	// add-on is removed.
	Found bool `json:"found,omitempty"`
}

func (e entry) asObject() *unstructured.Unstructured { return e.Ref.ToObject(e.Version) }

// readInventory returns the inventory of an add-on; nil if there is none.
func readInventory(ctx context.Context, c *kube.Client, name string) (*inventory, error) {
	cm, err := c.ConfigMaps().Get(ctx, namespace, prefix+name)
	if cm == nil || err != nil {
		return nil, err
	}
	return parseInventory(cm)
}

// listInventories returns the inventories of all add-ons, the newest first.
func listInventories(ctx context.Context, c *kube.Client) ([]*inventory, error) {
	maps, err := c.ConfigMaps().List(ctx, namespace, mark)
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
		inv, err := parseInventory(&maps[i])
		if err != nil {
			return nil, err
		}
		out = append(out, inv)
	}
	return out, nil
}

func parseInventory(cm *corev1.ConfigMap) (*inventory, error) {
	inv := &inventory{
		Name: cm.Labels[mark], State: state(cm.Data["state"]), Digest: cm.Data["digest"],
		Installed: cm.Data["installed"] == "true",
	}
	if text := cm.Data["sources"]; text != "" {
		inv.Sources = strings.Split(text, "\n")
	}
	if err := json.Unmarshal([]byte(cm.Data["objects"]), &inv.Objects); err != nil {
		return nil, fmt.Errorf("reading the inventory of an add-on in ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	return inv, nil
}

// asConfigMap returns the inventory as a ConfigMap.
func (inv *inventory) asConfigMap() (*unstructured.Unstructured, error) {
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

// saveInventory saves the inventory in the cluster.
func (inv *inventory) saveInventory(ctx context.Context, c *kube.Client) error {
	o, err := inv.asConfigMap()
	if err != nil {
		return err
	}
	return c.Objects().Apply(ctx, []*unstructured.Unstructured{o})
}

// isSameAs reports whether two inventories have the same objects from the same sources.
func (inv *inventory) isSameAs(other *inventory) bool {
	return inv.Digest == other.Digest && inv.State == other.State &&
		slices.Equal(inv.Objects, other.Objects) && slices.Equal(inv.Sources, other.Sources)
}

// findEntry returns the entry of an object.
func (inv *inventory) findEntry(ref addonsource.Ref) (entry, bool) {
	if inv == nil {
		return entry{}, false
	}
	i := slices.IndexFunc(inv.Objects, func(e entry) bool { return e.Ref == ref })
	if i < 0 {
		return entry{}, false
	}
	return inv.Objects[i], true
}

// entriesWithout returns the entries that are not among others.
func (inv *inventory) entriesWithout(others []entry) (out []entry) {
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
