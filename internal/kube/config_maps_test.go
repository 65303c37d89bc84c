package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigMapsFindFieldManagers_ReturnsManagersOfKey(t *testing.T) {
	const path = "GET /api/v1/namespaces/kube-system/configmaps/kubelet-config"
	object := func(data, managers string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kubelet-config","managedFields":[` + managers + `]},"data":{` +
			data + `}}`
	}
	wrote := func(by, field string) string {
		return `{"manager":"` + by + `","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:` + field +
			`":{}},"f:metadata":{"f:labels":{"f:kubelet":{}}}}}`
	}
	for _, tc := range []struct {
		name, reason string
		call         call
		by           []string
		found        bool
	}{
		{
			"unchanged", "the manager that created it",
			call{request: path, answer: object(`"kubelet":"x"`, wrote("kubeadm", "kubelet"))},
			[]string{"kubeadm"},
			true,
		},
		{
			"edited", "another manager set the key; other keys do not count",
			call{request: path, answer: object(`"kubelet":"x","more":"y"`, wrote("kubeadm", "more")+","+wrote("kubectl-edit", "kubelet"))},
			[]string{"kubectl-edit"},
			true,
		},
		{
			"two managers", "both have set the same value",
			call{request: path, answer: object(`"kubelet":"x"`, wrote("slipway", "kubelet")+","+wrote("kubeadm", "kubelet"))},
			[]string{"kubeadm", "slipway"},
			true,
		},
		{"no manager", "no entry has the key", call{request: path, answer: object(`"kubelet":"x"`, "")}, nil, true},
		{"no such key", "it was removed", call{request: path, answer: object(`"more":"y"`, wrote("kubeadm", "more"))}, nil, false},
		{"gone", "it was deleted", call{request: path, status: 404}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeAPI(t, tc.call).newClient()
			by, found, err := c.ConfigMaps().FindFieldManagers(t.Context(), "kube-system", "kubelet-config", "kubelet")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.by, by); d != "" || found != tc.found {
				t.Errorf("%s: found %t (-want +got):\n%s", tc.reason, found, d)
			}
		})
	}
}

func TestConfigMapsGet_ReturnsNilIfMissing(t *testing.T) {
	const path = "GET /api/v1/namespaces/kube-system/configmaps/x"
	f := newFakeAPI(t,
		call{request: path, status: 404},
		call{
			request: path,
			answer: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"kube-system","resourceVersion":"7"},` +
				`"data":{"a":"1"}}`,
		},
	)
	c := f.newClient()
	cm, err := c.ConfigMaps().Get(t.Context(), "kube-system", "x")
	if cm != nil || err != nil {
		t.Fatalf("got %v, %v; want nil for a missing ConfigMap and no error", cm, err)
	}
	cm, err = c.ConfigMaps().Get(t.Context(), "kube-system", "x")
	if err != nil || cm.Data["a"] != "1" {
		t.Fatalf("got %v, %v", cm, err)
	}
}
