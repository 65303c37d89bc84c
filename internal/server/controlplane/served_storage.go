package controlplane

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// A servedStorage opens the storage of the served resources. The library would also open the
// storage of the other resources of a group, and would not close it at the stop of the server:
// etcd waits for the end of its watches.
type servedStorage struct {
	generic.RESTOptionsGetter
	served *serverstorage.ResourceConfig
}

// GetRESTOptions returns the options of a resource. Without its storage, a resource cannot be
// served.
func (s servedStorage) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	o, err := s.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil && !s.isServed(resource) {
		o.Decorator, o.CountMetricPollPeriod = openNothing, 0
	}
	return o, err
}

// isServed reports whether a version of a resource is served.
func (s servedStorage) isServed(resource schema.GroupResource) bool {
	for version := range s.served.GroupVersionConfigs {
		if version.Group == resource.Group && s.served.ResourceEnabled(resource.WithVersion(version.Version)) {
			return true
		}
	}
	return false
}

// openNothing is a generic.StorageDecorator without a storage.
func openNothing(
	*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
	storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	return nil, func() {}, nil
}
