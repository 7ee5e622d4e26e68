//! The requests whose arguments are the fields of one struct. `RunRequest` combines two structs.

use serde_json::{Map, Value};

use super::{
    CommandRequest, FetchRequest, ForgetRequest, ForwardRequest, GetRequest, HostsRequest,
    JobsRequest, LookRequest, PutRequest, QueueRequest, ReadRequest, RecipeRequest, SearchRequest,
    SignalRequest, TailRequest, VoteRequest, WaitRequest, WriteRequest,
};
use crate::error::Error;
use crate::request::{WireRequest, parse};
use crate::schema::schema_of;

macro_rules! plain_requests {
    ($($request:ty),*) => { $(
        impl WireRequest for $request {
            fn parse(object: Map<String, Value>) -> Result<Self, Error> {
                parse(object)
            }

            fn schema() -> Map<String, Value> {
                schema_of::<Self>()
            }
        }
    )* };
}

plain_requests!(
    CommandRequest,
    LookRequest,
    TailRequest,
    ReadRequest,
    SearchRequest,
    WaitRequest,
    WriteRequest,
    SignalRequest,
    JobsRequest,
    HostsRequest,
    FetchRequest,
    ForgetRequest,
    ForwardRequest,
    GetRequest,
    PutRequest,
    QueueRequest,
    RecipeRequest,
    VoteRequest
);
