package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/api/crds"
	"slipway.dev/slipway/api/policies"
	"slipway.dev/slipway/api/roles"
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

const (
	// SystemNamespace is the namespace of the server's own objects.
	SystemNamespace = "slipway-system"
	// fieldManager owns the fields of the objects that the server applies.
	fieldManager = "slipwayd"
	// digestAnnotation has the digest of an object as the program has it.
	digestAnnotation = v1alpha1.Group + "/definition-digest"
	// applyTime limits the time for all definitions.
	applyTime = time.Minute
	// refusalTime is the time after which a refusal does not come from the start of the API
	// server itself.
	refusalTime = 20 * time.Second
)

// systemNamespace is the namespace of the server's own objects.
const systemNamespace = "{apiVersion: v1, kind: Namespace, metadata: {name: " + SystemNamespace + "}}"

// applyDefinitions applies the definitions of the kinds of Slipway, the roles and the policies,
// and waits until the kinds are served.
func (s *Server) applyDefinitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	client, err := dynamic.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	a := &applier{client: client, log: s.config.Log, kubeconfig: s.config.Certificates.AdminKubeconfig(), begun: time.Now()}
	for _, text := range [][]byte{[]byte(systemNamespace), crds.Clusters, crds.Operations, crds.OperationLogs} {
		if err := a.applyAll(ctx, text); err != nil {
			return fmt.Errorf("applying the definitions of Slipway's kinds: %w", err)
		}
	}
	for _, text := range [][]byte{roles.Roles, policies.Clusters, policies.Operations, policies.Secrets} {
		if err := a.applyAll(ctx, text); err != nil {
			return fmt.Errorf("applying the roles and policies of Slipway: %w", err)
		}
	}
	for _, resource := range []string{"clusters", "operations", "operationlogs"} {
		if err := waitUntilServed(ctx, client, resource); err != nil {
			return err
		}
	}
	return nil
}

// An applier applies the server's own objects at a start.
type applier struct {
	client     dynamic.Interface
	log        *slog.Logger
	kubeconfig string // for the remedy
	begun      time.Time
	// refused reports that an object was refused and its stored form is used. A webhook that
	// does not respond would delay each further request.
	refused bool
}

// applyAll applies the objects of a YAML text. Other values of the fields in it are overwritten.
// Fields that others have added to the objects do not change.
func (a *applier) applyAll(ctx context.Context, text []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := markText(object); err != nil {
			return err
		}
		if err := a.applyObject(ctx, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// markText sets an annotation with the digest of an object, so that a later start finds out
// whether the stored object is of the same program.
func markText(object *unstructured.Unstructured) error {
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[digestAnnotation] = hex.EncodeToString(sum[:])
	object.SetAnnotations(annotations)
	return nil
}

// applyObject applies one object, unless it is stored as it should be. It tries again while the
// API server starts: some resources are refused until the server has read its own policies. A
// webhook or policy of a user that refuses an object does not stop the server if the object is
// as it should be. Otherwise the user can correct the webhook or policy until ctx ends, because
// the API is served already.
func (a *applier) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	var at dynamic.ResourceInterface = a.client.Resource(resource)
	if namespace := object.GetNamespace(); namespace != "" {
		at = a.client.Resource(resource).Namespace(namespace)
	}
	fields := object.DeepCopy() // without the digest, which an older program has not written
	unstructured.RemoveNestedField(fields.Object, "metadata", "annotations", digestAnnotation)
	if len(fields.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(fields.Object, "metadata", "annotations")
	}
	switch {
	case object.GetAnnotations()[digestAnnotation] != "" && isStored(ctx, at, object), a.refused && isStored(ctx, at, fields):
		return nil
	}
	var last, known error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := at.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil || last == nil { // else the end of ctx is the only reason
			last = err
		}
		if isWithoutRoom(err) {
			// An earlier start has applied the object. Reads and deletions must work.
			_, last = at.Get(ctx, object.GetName(), metav1.GetOptions{})
			return last == nil, nil
		}
		if !isRefusedByUser(err) && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
			return false, err
		}
		if time.Since(a.begun) < refusalTime {
			return false, nil
		}
		if isStored(ctx, at, fields) {
			a.refused = true
			a.log.Error("an object of the server cannot be applied; the stored one is used",
				"kind", object.GetKind(), "name", object.GetName(), "error", last)
			return true, nil
		}
		if isRefusedByUser(err) && known == nil {
			known = a.explainRefusal(object, err)
			a.log.Error(known.Error())
		}
		return false, nil
	})
	switch {
	case err == nil:
		return nil
	case isRefusedByUser(last):
		return a.explainRefusal(object, last)
	case last != nil:
		return last
	}
	return err
}

// explainRefusal returns the refusal for an object that a webhook or policy of a user refuses.
func (a *applier) explainRefusal(object *unstructured.Unstructured, err error) error {
	return diag.Refuse(idDefinitionRefused,
		fmt.Sprintf("a webhook or policy refuses the server's %s %s: %v", object.GetKind(), object.GetName(), err),
		fmt.Sprintf("while the server starts, correct or delete the webhook configuration or policy: kubectl --kubeconfig %s delete KIND NAME",
			a.kubeconfig))
}

// refusalTexts are parts of the errors of webhooks and policies. Their status can be any.
var refusalTexts = []string{
	"admission webhook ", "failed calling webhook ", " denied request: ", "failed to configure policy: ", "failed to configure binding: ",
}

// isRefusedByUser reports whether a webhook or policy has refused a request.
func isRefusedByUser(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && slices.ContainsFunc(refusalTexts, func(text string) bool {
		return strings.Contains(status.Status().Message, text)
	})
}

// isStored reports whether an object is stored with all its fields.
func isStored(ctx context.Context, at dynamic.ResourceInterface, object *unstructured.Unstructured) bool {
	stored, err := at.Get(ctx, object.GetName(), metav1.GetOptions{})
	return err == nil && hasFields(stored.Object, object.Object)
}

// hasFields reports whether a stored value has all fields and entries of a wanted one.
func hasFields(stored, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		fields, _ := stored.(map[string]any)
		for name, value := range wanted {
			if have, ok := fields[name]; !ok || !hasFields(have, value) {
				return false
			}
		}
		return true
	case []any:
		entries, _ := stored.([]any)
		for _, value := range wanted {
			if !slices.ContainsFunc(entries, func(have any) bool { return hasFields(have, value) }) {
				return false
			}
		}
		return true
	}
	return stored == wanted
}

// isWithoutRoom reports whether a write was refused because the disk or the database is full.
func isWithoutRoom(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInsufficientStorage
}

// waitUntilServed waits until objects of a resource can be listed.
func waitUntilServed(ctx context.Context, client dynamic.Interface, resource string) error {
	at := client.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: resource})
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, last = at.List(ctx, metav1.ListOptions{Limit: 1})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("resource %s.%s is not served: %w", resource, v1alpha1.Group, errors.Join(err, last))
	}
	return nil
}
