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

func TestObjectsApply_SendsNamespacesAndDefinitionsFirst(t *testing.T) {
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
	err := f.newClient().Objects().Apply(t.Context(), decodeObjects(t, `
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

func TestObjectsDiff_ReturnsChangesOfDryRun(t *testing.T) {
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
	got, err := f.newClient().Objects().Diff(t.Context(), decodeObjects(t, `
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

func TestObjectsDelete_DeletesInReverseOrderAndWaits(t *testing.T) {
	f := newFakeAPI(t,
		call{request: "GET /api/v1", answer: coreKinds},
		call{request: "DELETE " + mapPath, body: `"propagationPolicy":"Background"`, status: 404},
		call{request: "GET /apis/a.dev/v1", status: 404},
		call{request: "DELETE " + nsPath, answer: `{"kind":"Status","apiVersion":"v1","status":"Success"}`},
		call{request: "GET " + nsPath, answer: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns","finalizers":["x"]}}`},
		call{request: "GET " + nsPath, status: 404},
	)
	err := f.newClient().Objects().Delete(t.Context(), decodeObjects(t, `
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

// DeleteLive deletes exactly the object that was read.
func TestObjectsDeleteLive_DeletesOnlyTheObjectThatWasRead(t *testing.T) {
	const at = "/api/v1/namespaces/n/configmaps/a"
	c := newFakeAPI(t,
		call{request: "GET /api/v1", answer: mapKinds}, call{request: "GET " + at, answer: aMap},
		call{request: "DELETE " + at, body: `"uid":"u-1"`, answer: `{}`}, call{request: "GET " + at, status: 404},
		call{request: "GET " + at, status: 404},
		call{request: "GET /apis/example.com/v1", status: 404},
		call{request: "PATCH " + at + "?fieldManager=slipway", body: `{"metadata":{"labels":{"x":null}}}`, answer: aMap},
	).newClient()
	live, err := c.Objects().Get(t.Context(), decodeObject(t, aMap))
	if err != nil || live.GetUID() != "u-1" {
		t.Fatal(live, err)
	}
	if err := c.Objects().DeleteLive(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if live, err := c.Objects().Get(t.Context(), decodeObject(t, aMap)); live != nil || err != nil {
		t.Errorf("a missing object: %v, %v", live, err)
	}
	unknown := decodeObject(t, "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n")
	if live, err := c.Objects().Get(t.Context(), unknown); live != nil || err != nil {
		t.Errorf("an object of an unknown kind: %v, %v", live, err)
	}
	if err := c.Objects().RemoveLabel(t.Context(), decodeObject(t, aMap), "x"); err != nil {
		t.Error(err)
	}
}

func TestObjectsListNames_ReturnsNoneIfKindIsNotServed(t *testing.T) {
	const path = "GET /apis/storagemigration.k8s.io/v1/storageversionmigrations"
	f := newFakeAPI(t,
		call{request: path, answer: listJSON(`{"apiVersion":"storagemigration.k8s.io/v1","kind":"StorageVersionMigration",` +
			`"metadata":{"name":"m"}}`)},
		call{request: path, status: 404},
	)
	c := f.newClient()
	got, err := c.Objects().ListNames(t.Context(), "storagemigration.k8s.io/v1/storageversionmigrations")
	if d := cmp.Diff([]string{"m"}, got); d != "" || err != nil {
		t.Errorf("(-want +got):\n%s %v", d, err)
	}
	if got, err = c.Objects().ListNames(t.Context(), "storagemigration.k8s.io/v1/storageversionmigrations"); got != nil || err != nil {
		t.Errorf("names of a kind that is not served: %v, %v", got, err)
	}
	if _, err = c.Objects().ListNames(t.Context(), "pods"); err == nil {
		t.Error("want an error")
	}
}
