package kube

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rewrittenAtOnce is the number of objects per list request, rewriters the number of
// concurrent writes.
const (
	rewrittenAtOnce = 200
	rewriters       = 8
)

// Rewrite writes all objects of a core resource unchanged, so that the API server stores
// them with its current encryption. The API server does not write an object that it already
// stores in this way. Objects that another client changes or deletes in the meantime need no
// rewrite. done is called with the number of objects so far.
func (c Objects) Rewrite(ctx context.Context, resource string, done func(n int)) error {
	all := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
	n := 0
	for more := ""; ; {
		list, err := all.List(ctx, metav1.ListOptions{Limit: rewrittenAtOnce, Continue: more})
		if apierrors.IsResourceExpired(err) { // the list has expired: start again
			more, n = "", 0
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", resource, c.describeError(err))
		}
		g, each := errgroup.WithContext(ctx)
		g.SetLimit(rewriters)
		for i := range list.Items {
			g.Go(func() error { return c.rewriteOne(each, resource, &list.Items[i]) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		n += len(list.Items)
		done(n)
		if more = list.GetContinue(); more == "" {
			return nil
		}
	}
}

func (c Objects) rewriteOne(ctx context.Context, resource string, o *unstructured.Unstructured) error {
	of := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
	var err error
	if ns := o.GetNamespace(); ns != "" {
		_, err = of.Namespace(ns).Update(ctx, o, metav1.UpdateOptions{FieldManager: FieldManager})
	} else {
		_, err = of.Update(ctx, o, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	// The server's message may quote the object.
	return fmt.Errorf("rewriting %s %s/%s: the API server refuses it (%s)", resource, o.GetNamespace(), o.GetName(),
		apierrors.ReasonForError(err))
}
