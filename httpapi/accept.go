package httpapi

import (
	"mime"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// WantsJSON chooses between the two forms by the Accept header: the patch,
// unless JSON is preferred by name. 406 has no place here: what accepts neither
// gets the patch.
func WantsJSON(c *gin.Context) bool {
	best, bestQ := "", 0.0
	for _, value := range c.Request.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			t, params, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err != nil {
				continue
			}
			q := 1.0
			if s, ok := params["q"]; ok {
				if q, err = strconv.ParseFloat(s, 64); err != nil {
					continue
				}
			}
			if q > bestQ && (t == "application/json" || strings.HasPrefix(t, "text/") || t == "*/*") {
				best, bestQ = t, q
			}
		}
	}
	return best == "application/json"
}
