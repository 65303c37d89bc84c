package kube

import (
	"errors"
	"strings"
	"testing"
)

const (
	mapKinds = `{"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}, {"name": "pods", "kind": "Pod", ` +
		`"namespaced": true}]}`
	aMap = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", "uid": "u-1", "labels": {"x": "y"}}}`
)

// WaitSettled waits until a Job is complete and a pod is ready or complete. It returns an
// error for an object that has failed.
func TestObjectsWaitSettled_WaitsByKindAndFailsWithFailedObjects(t *testing.T) {
	kinds := map[string]string{
		"/apis/batch/v1":                  `{"resources": [{"name": "jobs", "kind": "Job", "namespaced": true}]}`,
		"/api/v1":                         mapKinds,
		"/apis/apiregistration.k8s.io/v1": `{"resources": [{"name": "apiservices", "kind": "APIService", "namespaced": false}]}`,
	}
	condition := func(name string) string {
		return `{"metadata": {"name": "a", "namespace": "n"}, "kind": "X", "apiVersion": "v1", "status": {"conditions": [{"type": "` +
			name + `", "status": "True"}]}}`
	}
	phase := func(p string) string {
		return `{"metadata": {"name": "a", "namespace": "n"}, "kind": "Pod", "apiVersion": "v1", "status": {"phase": "` + p + `"}}`
	}
	for _, tc := range []struct {
		name, object, kinds, path string
		answers                   []string
		says                      string
	}{
		{
			"a job", "apiVersion: batch/v1\nkind: Job", "/apis/batch/v1", "/apis/batch/v1/namespaces/n/jobs/a",
			[]string{condition("Suspended"), condition("Complete")},
			"",
		},
		{
			"a job that fails", "apiVersion: batch/v1\nkind: Job", "/apis/batch/v1", "/apis/batch/v1/namespaces/n/jobs/a",
			[]string{condition("Failed")},
			"the job has failed",
		},
		{"a pod", "apiVersion: v1\nkind: Pod", "/api/v1", "/api/v1/namespaces/n/pods/a", []string{phase("Running"), phase("Succeeded")}, ""},
		{
			"a pod that fails", "apiVersion: v1\nkind: Pod", "/api/v1", "/api/v1/namespaces/n/pods/a",
			[]string{phase("Failed")},
			"the pod has failed",
		},
		{
			"an API", "apiVersion: apiregistration.k8s.io/v1\nkind: APIService", "/apis/apiregistration.k8s.io/v1",
			"/apis/apiregistration.k8s.io/v1/apiservices/a",
			[]string{condition("Other"), condition("Available")},
			"",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := []call{{request: "GET " + tc.kinds, answer: kinds[tc.kinds]}}
			for _, a := range tc.answers {
				calls = append(calls, call{request: "GET " + tc.path, answer: a})
			}
			c := newFakeAPI(t, calls...).newClient()
			err := c.Objects().WaitSettled(t.Context(), decodeObject(t, tc.object+"\nmetadata: {name: a, namespace: \"n\"}\n"), nil)
			var known *Error
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (!errors.As(err, &known) || known.Reason != ReasonFailed || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("got error %v", err)
			}
		})
	}
	c := newFakeAPI(t).newClient()
	if err := c.Objects().WaitSettled(t.Context(), decodeObject(t, aMap), nil); err != nil || c.Objects().IsAwaited(decodeObject(t, aMap)) {
		t.Errorf("waiting for a ConfigMap: %v", err)
	}
}
