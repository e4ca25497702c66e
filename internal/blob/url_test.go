package blob_test

import (
	"context"
	"strings"
	"testing"

	"umbra/internal/blob"
	"umbra/internal/blob/blobtest"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]blob.Location{
		"s3://packs":  {Bucket: "packs"},
		"s3://packs/": {Bucket: "packs"},
		"s3://my.packs-1/a/b/?region=eu-central-1":                           {Bucket: "my.packs-1", Prefix: "a/b", Region: "eu-central-1"},
		"s3://packs?endpoint=http://10.0.0.1:7070/":                          {Bucket: "packs", Endpoint: "http://10.0.0.1:7070"},
		"s3://packs/p?endpoint=https%3A%2F%2Fs3.example.org&path_style=true": {Bucket: "packs", Prefix: "p", Endpoint: "https://s3.example.org", PathStyle: true},
	} {
		got, err := blob.Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v %v", text, got, err)
		}
		if again, err := blob.Parse(got.String()); err != nil || again != got {
			t.Errorf("%s: %+v %v", got, again, err)
		}
	}
	for text, word := range map[string]string{
		"":                                       "scheme",
		"packs/p":                                "scheme",
		"https://packs/p":                        `"https"`,
		"s3:///p":                                "bucket",
		"s3://Packs":                             "bucket",
		"s3://AKIA:hunter2@packs":                "credentials",
		"s3://packs/a//b":                        "prefix",
		"s3://packs/../b":                        "prefix",
		"s3://packs/ä":                           "prefix",
		"s3://packs?regoin=x":                    `"regoin"`,
		"s3://packs?secret=hunter2":              `"secret"`,
		"s3://packs?region=a&region=b":           "twice",
		"s3://packs?path_style=maybe":            "path_style",
		"s3://packs?endpoint=ftp://x":            "endpoint",
		"s3://packs?endpoint=http://a:hunter2@x": "credentials",
		"s3://packs?endpoint=http://x/y":         "endpoint",
		"s3://packs#hunter2":                     "fragment",
		"s3://packs?%zz=hunter2":                 "query",
		"s3://AKIA:hunter2@packs:port/":          "URL",
	} {
		_, err := blob.Parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), "blobs_url_invalid: ") || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", text, err, word)
		}
	}
}

func TestRegionMissing(t *testing.T) {
	blobtest.Env(t, blobtest.AccessKey, blobtest.SecretKey)
	_, err := blob.OpenS3(context.Background(), blob.Location{Bucket: "packs"}, blob.Tuning{})
	said(t, err, "blobs_url_invalid", "cluster.blobs: region is missing; add ?region=… or set AWS_REGION.")
	t.Setenv("AWS_REGION", "eu-central-1")
	if _, err := blob.OpenS3(context.Background(), blob.Location{Bucket: "packs"}, blob.Tuning{}); err != nil {
		t.Error(err)
	}
}
