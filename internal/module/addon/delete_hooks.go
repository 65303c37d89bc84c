package addon

import (
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/internal/addonsource"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kube"
)

// hooksKey is the key under which the Secret of an inventory has the delete hooks of a
// chart.
const hooksKey = "hooks"

// deleteHooksSecret returns the Secret with the delete hooks of an add-on. It is not a
// ConfigMap, because hooks can contain Secrets.
func deleteHooksSecret(name string) *unstructured.Unstructured {
	return addonsource.Ref{Kind: "Secret", Namespace: namespace, Name: prefix + name}.ToObject("v1")
}

// savedDeleteHooks returns the saved delete hooks of an add-on; none if nothing is saved.
func savedDeleteHooks(ctx context.Context, c *kube.Client, name string) (f addonsource.DeleteHooks, err error) {
	live, err := c.Objects().Get(ctx, deleteHooksSecret(name))
	if live == nil || err != nil {
		return f, err
	}
	text, _, _ := unstructured.NestedString(live.Object, "data", hooksKey)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		f, err = addonsource.DecodeDeleteHooks(raw)
	}
	if err != nil {
		return f, hookFailed(name, fmt.Sprintf("add-on %s: "+
			"its hooks in Secret %s/%s cannot be read: %v", name, namespace, prefix+name, err), "restore the Secret")
	}
	return f, nil
}

// hasSavedDeleteHooks reports whether the saved delete hooks equal the hooks of the chart.
func hasSavedDeleteHooks(ctx context.Context, c *kube.Client, a addonsource.Addon) (bool, error) {
	have, err := savedDeleteHooks(ctx, c, a.Name)
	if err != nil {
		return false, err
	}
	return have.IsSame(a.DeleteHooks())
}

// saveDeleteHooks saves the delete hooks of an add-on.
func saveDeleteHooks(ctx context.Context, c *kube.Client, a addonsource.Addon) error {
	same, err := hasSavedDeleteHooks(ctx, c, a)
	if same || err != nil {
		return err
	}
	if len(a.Last) == 0 {
		return deleteObject(ctx, c, deleteHooksSecret(a.Name))
	}
	raw, err := a.DeleteHooks().Encode()
	if err != nil {
		return err
	}
	o := deleteHooksSecret(a.Name)
	o.SetLabels(map[string]string{mark: a.Name})
	o.Object["data"] = map[string]any{hooksKey: base64.StdEncoding.EncodeToString(raw)}
	return c.Objects().Apply(ctx, []*unstructured.Unstructured{o})
}

// deleteObject deletes an object, if it exists.
func deleteObject(ctx context.Context, c *kube.Client, o *unstructured.Unstructured) error {
	live, err := c.Objects().Get(ctx, o)
	if live == nil || err != nil {
		return err
	}
	return c.Objects().DeleteLive(ctx, live)
}

// hookFailed returns the error that stops a removal. Its hint has the commands
// that continue and that skip the hooks.
func hookFailed(name, message, remedy string) error {
	return diag.List{{
		ID: addonsource.IDHookFailed, Severity: diag.Error, Message: message,
		Hint: remedy + ", then run slipway resume; or skip the hooks: " +
			"run kubectl delete secret -n " + namespace + " " + prefix + name + ", then slipway resume",
	}}
}
