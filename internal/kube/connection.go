package kube

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A connection is the connection to one cluster. All clients by subject share it.
type connection struct {
	http    *http.Client
	rest    rest.Interface
	dynamic dynamic.Interface
	kinds   *kindCache
	server  *url.URL
	// first is the first pause between two checks while waiting. It doubles each time, up
	// to interval.
	first, interval time.Duration
}

func fromUnstructured(u *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// waitUntil does the work of Client.WaitUntil.
func (c *connection) waitUntil(ctx context.Context, look func(context.Context) (missing string, err error)) error {
	var failed error
	last := "there was no response yet"
	pause := wait.Backoff{Duration: c.first, Factor: 2, Cap: c.interval, Steps: math.MaxInt32}
	err := pause.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
		missing, err := look(ctx)
		switch err := c.describeError(err); {
		case err == nil && missing == "":
			return true, nil
		case err == nil:
			last = missing
		case ctx.Err() != nil: // the wait ends with the last message
		case IsTemporary(err):
			last = err.Error()
		default:
			failed = err
		}
		return false, failed
	})
	if err == nil || failed != nil {
		return failed
	}
	return &Error{Reason: ReasonTimeout, Message: "stopped waiting: " + last, Err: err}
}

// withProgress calls progress with what is missing, whenever that changes.
func withProgress(progress func(string), look func(context.Context) (string, error)) func(context.Context) (string, error) {
	last := ""
	return func(ctx context.Context) (string, error) {
		missing, err := look(ctx)
		if progress != nil && err == nil && missing != "" && missing != last {
			last = missing
			progress(missing)
		}
		return missing, err
	}
}

// conditionStatus returns the status of a condition of an object, "" if it has none.
func conditionStatus(u *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && m["type"] == name {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}
