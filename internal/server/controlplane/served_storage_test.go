package controlplane

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
)

func TestServedStorage_OpensServedResourcesOnly(t *testing.T) {
	given := generic.RESTOptions{Decorator: registry.StorageWithCacher(), CountMetricPollPeriod: 1}
	for _, tt := range []struct {
		name, reason string
		resource     schema.GroupResource
		want         bool
	}{
		{"core", "it is served", schema.GroupResource{Resource: "configmaps"}, true},
		{"a group", "it is served", schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"}, true},
		{"not served", "etcd would wait for its watch", schema.GroupResource{Resource: "resourcequotas"}, false},
		{"another group", "its group is not served", schema.GroupResource{Group: "apps", Resource: "deployments"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := servedStorage{given, servedResources()}.GetRESTOptions(tt.resource, nil)
			if err != nil || (o.CountMetricPollPeriod > 0) != tt.want {
				t.Fatalf("%s: its objects are counted every %d, %v", tt.reason, o.CountMetricPollPeriod, err)
			}
			if tt.want {
				return
			}
			opened, destroy, err := o.Decorator(nil, "", nil, nil, nil, nil, nil, nil)
			if opened != nil || err != nil {
				t.Errorf("%s: %v, %v", tt.reason, opened, err)
			}
			destroy()
		})
	}
}
