package blob

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"umbra/internal/errs"
)

// Location says where an S3 store is:
//
//	s3://bucket/prefix?region=eu-central-1&endpoint=https://s3.example.org&path_style=true
//
// All parts but the bucket may be missing. The region is then that of the AWS
// SDK's environment and files.
type Location struct {
	Bucket    string
	Prefix    string // without slashes at its ends; may be empty
	Region    string
	Endpoint  string // scheme and host; empty: Amazon's
	PathStyle bool   // the bucket is in the path, not in the host name
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Parse reads a location. Its error is an *errs.Error with code blobs_url_invalid
// and contains no credential.
func Parse(text string) (Location, error) {
	l, err := parse(text)
	if err != nil {
		return Location{}, errs.New(errs.Invalid, "blobs_url_invalid", "cluster.blobs: %v.", err)
	}
	return l, nil
}

func parse(text string) (l Location, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return l, errors.New("this is not a URL; s3://bucket/prefix?region=… is expected") // the cause would repeat the text
	}
	switch {
	case u.Scheme != "s3":
		return l, fmt.Errorf("scheme %q is not supported; s3://bucket/prefix?region=… is expected", u.Scheme)
	case u.User != nil:
		return l, errors.New("credentials do not belong in the URL; the AWS SDK takes them from environment, files or the machine's role")
	case u.Fragment != "":
		return l, errors.New("a fragment (#…) has no meaning here")
	case !bucketName.MatchString(u.Host):
		return l, fmt.Errorf("%q is not a bucket's name", u.Host)
	}
	l.Bucket, l.Prefix = u.Host, strings.Trim(u.Path, "/")
	if l.Prefix != "" {
		if err := checkKey(l.Prefix); err != nil || len(l.Prefix) > 256 {
			return l, fmt.Errorf("prefix %q has other characters than letters, digits and ._-~/, an empty name, or more than 256 bytes", l.Prefix)
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, errors.New("the query is malformed")
	}
	for name, values := range query {
		if len(values) != 1 {
			return l, fmt.Errorf("%s is given twice", name)
		}
		switch v := values[0]; name {
		case "region":
			l.Region = v
		case "endpoint":
			if l.Endpoint, err = endpoint(v); err != nil {
				return l, err
			}
		case "path_style":
			if l.PathStyle, err = strconv.ParseBool(v); err != nil {
				return l, fmt.Errorf("path_style is true or false, not %q", v)
			}
		default:
			return l, fmt.Errorf("unknown option %q; region, endpoint and path_style exist", name)
		}
	}
	return l, nil
}

func endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("endpoint is not a URL")
	case u.User != nil:
		return "", errors.New("credentials do not belong in the endpoint")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "":
		return "", errors.New("endpoint is http:// or https:// and a host")
	}
	return u.Scheme + "://" + u.Host, nil
}

// String returns the URL.
func (l Location) String() string {
	u := url.URL{Scheme: "s3", Host: l.Bucket}
	if l.Prefix != "" {
		u.Path = "/" + l.Prefix
	}
	query := url.Values{}
	if l.Region != "" {
		query.Set("region", l.Region)
	}
	if l.Endpoint != "" {
		query.Set("endpoint", l.Endpoint)
	}
	if l.PathStyle {
		query.Set("path_style", "true")
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Place returns bucket and prefix, as messages name them.
func (l Location) Place() string { return strings.TrimSuffix("s3://"+l.Bucket+"/"+l.Prefix, "/") }
