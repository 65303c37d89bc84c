package addon

import (
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addon"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kube"
)

// hooksKey is under which the Secret beside an inventory has a chart's hooks around
// the deletion of its objects.
const hooksKey = "hooks"

// farewellOf is the Secret beside an add-on's inventory. It is no ConfigMap, for
// among the objects of hooks may be Secrets.
func farewellOf(name string) *unstructured.Unstructured {
	return addon.Ref{Kind: "Secret", Namespace: namespace, Name: prefix + name}.Object("v1")
}

// kept is what is to be done around the deletion of an add-on's objects: nothing,
// if nothing is on record.
func kept(ctx context.Context, c *kube.Client, name string) (f addon.Farewell, err error) {
	live, err := c.Live(ctx, farewellOf(name))
	if live == nil || err != nil {
		return f, err
	}
	text, _, _ := unstructured.NestedString(live.Object, "data", hooksKey)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		f, err = addon.Unpack(raw)
	}
	if err != nil {
		return f, hookFailed(name, fmt.Sprintf("the hooks of add-on %s in Secret %s/%s cannot be read: %v", name, namespace, prefix+name, err), "put the Secret back as it was")
	}
	return f, nil
}

// keeps says that what is on record is what the add-on's chart has done by now.
func keeps(ctx context.Context, c *kube.Client, a addon.Addon) (bool, error) {
	have, err := kept(ctx, c, a.Name)
	if err != nil {
		return false, err
	}
	return have.Same(a.Farewell())
}

// keep puts on record what is to be done when the add-on is taken out.
func keep(ctx context.Context, c *kube.Client, a addon.Addon) error {
	same, err := keeps(ctx, c, a)
	if same || err != nil {
		return err
	}
	if len(a.Last) == 0 {
		return discard(ctx, c, farewellOf(a.Name))
	}
	raw, err := a.Farewell().Pack()
	if err != nil {
		return err
	}
	o := farewellOf(a.Name)
	o.SetLabels(map[string]string{mark: a.Name})
	o.Object["data"] = map[string]any{hooksKey: base64.StdEncoding.EncodeToString(raw)}
	return c.Apply(ctx, []*unstructured.Unstructured{o})
}

// discard takes something off the record.
func discard(ctx context.Context, c *kube.Client, o *unstructured.Unstructured) error {
	live, err := c.Live(ctx, o)
	if live == nil || err != nil {
		return err
	}
	return c.DeleteLive(ctx, live)
}

// hookFailed is what stops a removal: it names the way on, and the way past the
// hooks.
func hookFailed(name, message, mend string) error {
	return diag.List{{
		ID: addon.IDHookFailed, Severity: diag.Error, Message: message,
		Hint: mend + ", then go on: slipway resume; or pass its hooks by: kubectl delete secret -n " + namespace + " " + prefix + name + ", and go on",
	}}
}
