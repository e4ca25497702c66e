package wire

import (
	"umbra/httpapi"
	"umbra/internal/task"
)

// AboutTask is for routes with the id of a task as {id}.
func AboutTask(tasks *task.Service) httpapi.About { return httpapi.AboutWhere("id", tasks.Where) }
