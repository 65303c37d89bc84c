package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	coreKinds = `{"kind":"APIResourceList","groupVersion":"v1","resources":[
{"name":"namespaces","kind":"Namespace","namespaced":false},
{"name":"namespaces/status","kind":"Namespace","namespaced":false},
{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`
	crdKinds = `{"kind":"APIResourceList","groupVersion":"apiextensions.k8s.io/v1","resources":[
{"name":"customresourcedefinitions","kind":"CustomResourceDefinition","namespaced":false}]}`
	thingKinds = `{"kind":"APIResourceList","groupVersion":"a.dev/v1","resources":[
{"name":"things","kind":"Thing","namespaced":true}]}`

	crdPath   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.a.dev"
	nsPath    = "/api/v1/namespaces/ns"
	mapPath   = "/api/v1/namespaces/default/configmaps/c"
	thingPath = "/apis/a.dev/v1/namespaces/ns/things/t"
	asSlipway = "?fieldManager=slipway&force=true"
	dryRun    = "?dryRun=All&fieldManager=slipway&force=true"

	crdAnswer = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.a.dev"},
"spec":{"group":"a.dev","names":{"kind":"Thing"},"versions":[{"name":"v1","served":true},{"name":"v0","served":false}]}`
)

func TestApplyObjects_SendsNamespacesAndDefinitionsFirst(t *testing.T) {
	f := newFakeAPI(t,
		call{request: "GET /api/v1", answer: coreKinds},
		call{request: "PATCH " + nsPath + asSlipway, body: `"kind":"Namespace"`, answer: `{"apiVersion":"v1","kind":"Namespace"}`},
		call{request: "GET /apis/apiextensions.k8s.io/v1", answer: crdKinds},
		call{request: "PATCH " + crdPath + asSlipway, answer: crdAnswer + "}"},
		call{request: "GET " + crdPath, answer: crdAnswer + "}"},
		call{request: "GET " + crdPath, status: 503},
		call{request: "GET " + crdPath, answer: crdAnswer + `,"status":{"conditions":[{"type":"Established","status":"True"}]}}`},
		call{request: "GET /apis/a.dev/v1", status: 404},
		call{request: "GET " + crdPath, answer: crdAnswer + `,"status":{"conditions":[{"type":"Established","status":"True"}]}}`},
		call{request: "GET /apis/a.dev/v1", answer: thingKinds},
		call{request: "PATCH " + thingPath + asSlipway, body: `"size":3`, answer: `{"apiVersion":"a.dev/v1","kind":"Thing"}`},
		call{request: "PATCH " + mapPath + asSlipway, body: `"namespace":"default"`, status: 422, answer: statusAnswer(422, "data is too long")},
	)
	err := f.newClient().ApplyObjects(t.Context(), decodeObjects(t, `
{apiVersion: a.dev/v1, kind: Thing, metadata: {name: t, namespace: ns}, spec: {size: 3}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.a.dev}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ns, namespace: wrong}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: never}}
`))
	wantReason(t, err, ReasonInvalid)
	if err == nil || !strings.Contains(err.Error(), "applying ConfigMap c: data is too long") {
		t.Errorf("error is %v", err)
	}
}

func TestDiffObjects_ReturnsChangesOfDryRun(t *testing.T) {
	live := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default","resourceVersion":"1"},"data":{"x":"1"}}`
	f := newFakeAPI(t,
		call{request: "GET /apis/a.dev/v1", status: 404},
		call{request: "GET /api/v1", answer: coreKinds},
		call{request: "GET " + mapPath, answer: live},
		call{request: "PATCH " + mapPath + dryRun, answer: strings.Replace(live, `"x":"1"`, `"x":"2"`, 1)},
		call{request: "GET " + mapPath, answer: live},
		call{request: "PATCH " + mapPath + dryRun, answer: live},
		call{request: "GET " + nsPath, status: 404},
	)
	got, err := f.newClient().DiffObjects(t.Context(), decodeObjects(t, `
{apiVersion: a.dev/v1, kind: Thing, metadata: {name: t, namespace: ns}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {x: "2"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {x: "1"}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ns}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, ch := range got {
		said = append(said, string(ch.Action)+" "+ch.ObjectName())
	}
	want := []string{"create Thing ns/t", "update ConfigMap default/c", "create Namespace ns"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDeleteObjects_DeletesInReverseOrderAndWaits(t *testing.T) {
	f := newFakeAPI(t,
		call{request: "GET /api/v1", answer: coreKinds},
		call{request: "DELETE " + mapPath, body: `"propagationPolicy":"Background"`, status: 404},
		call{request: "GET /apis/a.dev/v1", status: 404},
		call{request: "DELETE " + nsPath, answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		call{request: "GET " + nsPath, answer: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns","finalizers":["x"]}}`},
		call{request: "GET " + nsPath, status: 404},
	)
	err := f.newClient().DeleteObjects(t.Context(), decodeObjects(t, `
{apiVersion: v1, kind: Namespace, metadata: {name: ns}}
---
{apiVersion: a.dev/v1, kind: Thing, metadata: {name: t, namespace: ns}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
`))
	if err != nil {
		t.Error(err)
	}
}
