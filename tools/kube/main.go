// Command kube does with objects of resource.k8s.io what kube-apiserver does before it stores
// them, with kube-apiserver's own code: it reads YAML documents from standard input, strictly,
// sets defaults, and validates each as one that is created. It names those that it takes.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
)

func main() {
	decoder := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDecoder(resource.SchemeGroupVersion)
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	failed := false
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var name string
		if err == nil {
			name, err = create(decoder, document)
		}
		if err != nil {
			failed = true
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		fmt.Println(name)
	}
	if failed {
		os.Exit(1)
	}
}

// create does what comes before an object is stored.
func create(decoder runtime.Decoder, document []byte) (name string, err error) {
	object, kind, err := decoder.Decode(document, nil, nil)
	if err != nil {
		return "", err
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	rest.FillObjectMetaSystemFields(m)
	ctx := request.WithNamespace(context.Background(), cmp.Or(m.GetNamespace(), "default"))
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: kind.Group, APIVersion: kind.Version})
	var strategy rest.RESTCreateStrategy
	switch kind.Kind {
	case "DeviceClass":
		strategy = deviceclass.Strategy
	case "ResourceClaimTemplate":
		strategy = resourceclaimtemplate.NewStrategy(nil) // a client is asked only for what has adminAccess
	default:
		return "", fmt.Errorf("%s is not for this program", kind)
	}
	if err := rest.BeforeCreate(strategy, ctx, object); err != nil {
		return "", err
	}
	return kind.Kind + " " + m.GetName(), nil
}
